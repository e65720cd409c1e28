"""Relaxation on a CPU: seconds, energies, violations, and how broken structures end.

usage: python benchmarks/relax.py FILE... [--threads N] [--device cpu]

Relaxes the first 91 and 148 residues of each file, the latter with every tenth residue displaced by 1 Å, and
five structures that are broken on purpose. CPU seconds are those of all threads: on a busy machine, wall
times are longer.
"""

import time
from collections.abc import Callable, Iterator

import gemmi
import numpy as np
from options import parse_options

from model.errors import RelaxError
from model.relax.amber import RelaxSettings, relax
from msa.io.structures import read_structure

_BROKEN_RESIDUES = 40
# residues → seconds on two idle cores that are expected at most
_EXPECTED = {91: 5.5, 148: 13.6}


def cystine(structure: gemmi.Structure) -> None:
    """Turn the third residue into CYX, the cysteine of a disulfide bond, without a partner."""
    structure[0][0][2].name = "CYX"


def missing_atoms(structure: gemmi.Structure) -> None:
    """Remove everything but the backbone of every other residue."""
    for residue in list(structure[0][0])[::2]:
        for name in [atom.name for atom in residue if atom.name not in ("N", "CA", "C", "O")]:
            residue.remove_atom(name, "\0", residue.find_atom(name, "*").element)


def broken_histidine(structure: gemmi.Structure) -> None:
    """Turn the third residue into a histidine without a ring, with an atom of another residue."""
    residue = structure[0][0][2]
    residue.name = "HIP"
    atom = residue[0].clone()
    atom.name = "ND9"
    atom.pos = gemmi.Position(atom.pos.x + 2, atom.pos.y, atom.pos.z)
    residue.add_atom(atom)


def endless_clash(structure: gemmi.Structure) -> None:
    """Put one half of the chain onto the other half."""
    residues = list(structure[0][0])
    half = len(residues) // 2
    for first, second in zip(residues[:half], residues[half:], strict=False):
        for atom, other in zip(first, second, strict=False):
            other.pos = atom.pos


def unknown_residue(structure: gemmi.Structure) -> None:
    """Rename the third residue to one that no library knows."""
    structure[0][0][2].name = "QQQ"


BROKEN: dict[str, Callable[[gemmi.Structure], None]] = {
    "CYX without a partner": cystine,
    "missing atoms": missing_atoms,
    "broken HIS": broken_histidine,
    "halves at one place": endless_clash,
    "unknown residue": unknown_residue,
}


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


def broken(structure: gemmi.Structure) -> Iterator[tuple[str, gemmi.Structure]]:
    """Yield the name and structure of each broken input."""
    for name, damage in BROKEN.items():
        copy = first_residues(structure, _BROKEN_RESIDUES)
        damage(copy)
        yield name, copy


def report(name: str, structure: gemmi.Structure, settings: RelaxSettings) -> None:
    """Relax a structure and print one line."""
    residues = sum(len(chain) for chain in structure[0])
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        result = relax(structure, settings)
    except RelaxError as error:
        print(
            f"{name}: {residues} residues, {time.perf_counter() - wall:.1f} s, not relaxed: {error}",
            flush=True,
        )
        return
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    before, after = result.energy_before, result.energy_after
    print(
        f"{name}: {residues} residues, {wall:.1f} s, {cpu:.1f} s of CPU time, {result.describe()}", flush=True
    )
    assert after <= before, f"{name}: the energy rose"


def main() -> None:
    """Relax the files, with and without violations, and broken structures."""
    arguments = parse_options(__doc__, "files+", threads=2, device=("cpu", "gpu", "auto"))
    settings = RelaxSettings(threads=arguments.threads, device=arguments.device)
    structures = [read_structure(path).structure for path in arguments.files]
    print(f"expected on two idle cores: {_EXPECTED}")
    for path, structure in zip(arguments.files, structures, strict=True):
        short, long = (first_residues(structure, count) for count in _EXPECTED)
        report(path.name, short, settings)
        if len(long[0][0]) > len(short[0][0]):
            report(f"{path.name} with violations", with_violations(long), settings)
    for name, structure in broken(structures[0]):
        report(name, structure, settings)


if __name__ == "__main__":
    main()
