"""Relaxation on a CPU: seconds, energies and violations.

usage: python benchmarks/relax.py FILE... [--threads N] [--device cpu]

Relaxes the first 91 and 148 residues of each file, the latter with every tenth residue displaced by 1 Å. CPU
seconds are those of all threads: on a busy machine, wall times are longer.
"""

import time

import gemmi
import numpy as np
from options import parse_options

from model.relax.amber import RelaxSettings, relax
from msa.io.structures import read_structure

# residues → seconds on two idle cores that are expected at most
_EXPECTED = {91: 5.5, 148: 13.6}


def first_residues(structure: gemmi.Structure, count: int) -> gemmi.Structure:
    """Return a copy with the first residues of the first chain."""
    copy = structure.clone()
    chain = copy[0][0]
    while len(chain) > count:
        del chain[-1]
    return copy


def with_violations(structure: gemmi.Structure) -> gemmi.Structure:
    """Return a copy in which every tenth residue is displaced by 1 Å."""
    structure = structure.clone()
    rng = np.random.default_rng(0)
    for residue in list(structure[0][0])[5::10]:
        shift = rng.normal(size=3)
        shift /= np.linalg.norm(shift)
        for atom in residue:
            atom.pos = gemmi.Position(*(np.array(atom.pos.tolist()) + shift))
    return structure


def report(name: str, structure: gemmi.Structure, settings: RelaxSettings) -> None:
    """Relax a structure and print one line."""
    residues = sum(len(chain) for chain in structure[0])
    wall, cpu = time.perf_counter(), time.process_time()
    result = relax(structure, settings)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    before, after = result.energy_before, result.energy_after
    print(
        f"{name}: {residues} residues, {wall:.1f} s, {cpu:.1f} s of CPU time, {result.describe()}", flush=True
    )
    assert after <= before, f"{name}: the energy rose"


def main() -> None:
    """Relax the files, with and without violations."""
    arguments = parse_options(__doc__, "files+", threads=2, device=("cpu", "gpu", "auto"))
    settings = RelaxSettings(threads=arguments.threads, device=arguments.device)
    print(f"expected on two idle cores: {_EXPECTED}")
    for path in arguments.files:
        structure = read_structure(path).structure
        short, long = (first_residues(structure, count) for count in _EXPECTED)
        report(path.name, short, settings)
        if len(long[0][0]) > len(short[0][0]):
            report(f"{path.name} with violations", with_violations(long), settings)


if __name__ == "__main__":
    main()
