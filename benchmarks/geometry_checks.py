"""Verdicts of the geometry checks compared with those of PoseBusters, on deformed ligands of the dictionary.

    python benchmarks/geometry_checks.py ours FOLDER     # with foldcli[allatom]
    python benchmarks/geometry_checks.py theirs FOLDER   # with posebusters, and the same release of RDKit

The first call writes deformed ligands and the verdicts of foldcli, the second prints for each check how many
verdicts are the same, and lists the others. PoseBusters 0.6.5 takes the largest signed distance from a plane
where its definition has the largest distance, and reads handedness from InChI.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from options import parse_options
from rdkit import Chem, RDLogger

LIGANDS = (
    "ATP", "NAD", "FAD", "SAM", "GDP", "IBP", "STI", "BTN", "CLR", "NAG", "RET", "PLP", "MTX", "AIN", "VIA",
    "DEX", "TA1", "OLA", "FMN", "CFF",
)  # fmt: skip
GLYCINE = np.array([[-0.5, 1.36, 0.0], [0.0, 0.0, 0.0], [1.52, 0.0, 0.0], [2.1, -1.06, 0.0]])
GEOMETRY = {
    "bond_lengths": "bond_lengths_within_bounds",
    "bond_angles": "bond_angles_within_bounds",
    "internal_clashes": "no_internal_clash",
}
FLATNESS = {
    "aromatic_flatness": "Ring flatness",
    "ring_pucker": "Ring non-flatness",
    "double_bond_flatness": "Double bond flatness",
}


def deform(
    molecule: Chem.Mol, ideal: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Return named deformations of ideal coordinates."""
    yield "ideal", ideal
    for sigma in (0.05, 0.12, 0.2, 0.3):
        yield f"noise {sigma}", ideal + rng.normal(0, sigma, ideal.shape)
    yield "mirrored", ideal * [1, 1, -1]
    yield "smaller", ideal * 0.7
    moved = ideal.copy()
    moved[np.argmax(np.abs(ideal[:, 0]))] += [3, 0, 0]
    yield "one atom moved", moved
    for ring in list(molecule.GetRingInfo().AtomRings())[:1]:
        rows = list(ring)
        centred = ideal[rows] - ideal[rows].mean(axis=0)
        normal = np.linalg.svd(centred)[2][-1]
        bent, flat = ideal.copy(), ideal.copy()
        bent[rows[0]] += 0.7 * normal
        flat[rows] -= np.outer(centred @ normal, normal)
        yield "ring atom out of plane", bent
        yield "ring flattened", flat
    for centre, _ in Chem.FindMolChiralCenters(molecule, includeUnassigned=False)[:1]:
        near = [other.GetIdx() for other in molecule.GetAtomWithIdx(centre).GetNeighbors()][:3]
        normal = np.cross(ideal[near[1]] - ideal[near[0]], ideal[near[2]] - ideal[near[0]])
        normal /= np.linalg.norm(normal)
        inverted = ideal.copy()
        inverted[centre] -= 2 * ((ideal[centre] - ideal[near[0]]) @ normal) * normal
        yield "one centre inverted", inverted


def write_ours(folder: Path) -> None:
    """Write the deformed ligands, each beside a glycine, and the verdicts of foldcli."""
    from features.assembly.atoms import build_atoms
    from features.assembly.job import Ligand, MoleculeJob, Polymer
    from features.assembly.tokens import build_tokens
    from features.chemistry.components import read_component
    from features.chemistry.molecules import build_molecule
    from features.chemistry.residue_classes import MoleculeKind
    from foldcli.outputs.all_atom.restraints import build_restraints
    from foldcli.outputs.all_atom.structure import build_structure
    from model.all_atom.checks import check_structure

    rng, rows = np.random.default_rng(7), []
    writer = Chem.SDWriter(str(folder / "deformed.sdf"))
    for code in LIGANDS:
        component = read_component(code)
        job = MoleculeJob("job", (Ligand(("L",), (code,)), Polymer(MoleculeKind.PROTEIN, "G", ("A",))))
        atoms = build_atoms(job)
        structure = build_structure(atoms, build_tokens(atoms))
        restraints = build_restraints(atoms, structure)
        plain = build_molecule(component, chiral=False)
        for number, (name, positions) in enumerate(deform(build_molecule(component), component.ideal, rng)):
            edge = positions[np.argmax(positions[:, 0])]
            glycine = GLYCINE + edge + [0.65 * (number % 8) - 1.0, 0.5, 0.0]
            checks = check_structure(structure, np.concatenate([positions, glycine]), restraints)
            counts = checks.chains[0].counts
            verdicts = {key: failed == 0 for key, (_, failed) in counts.items()}
            rows.append({"code": code, "name": name, "glycine": glycine.tolist(), "ours": verdicts})
            writer.write(_with_positions(plain, positions))
        Chem.MolToMolFile(_with_positions(plain, component.ideal), str(folder / f"{code}.mol"))
    writer.close()
    (folder / "ours.json").write_text(json.dumps(rows))


def _with_positions(molecule: Chem.Mol, positions: np.ndarray) -> Chem.Mol:
    copy, conformer = Chem.Mol(molecule), Chem.Conformer(len(positions))
    conformer.SetPositions(np.ascontiguousarray(positions))
    copy.AddConformer(conformer)
    return copy


def compare(folder: Path) -> None:
    """Print how many verdicts of PoseBusters are the same, and list the others."""
    rows = json.loads((folder / "ours.json").read_text())
    molecules = Chem.SDMolSupplier(str(folder / "deformed.sdf"), removeHs=False, sanitize=False)
    same: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    different = []
    for row, molecule in zip(rows, molecules, strict=True):
        reference = Chem.MolFromMolFile(str(folder / f"{row['code']}.mol"), removeHs=False, sanitize=False)
        for key, theirs in posebusters_verdicts(molecule, reference, np.array(row["glycine"])).items():
            same[key] += row["ours"].get(key, True) == theirs
            failed[key] += not theirs
            if row["ours"].get(key, True) != theirs:
                different.append(f"{row['code']} {row['name']}: {key}, PoseBusters {theirs}")
    print(f"{'check':<24}{'poses':>8}{'failed':>8}{'same':>8}")
    for key in failed:
        print(f"{key:<24}{len(rows):>8}{failed[key]:>8}{same[key]:>8}")
    print("\n".join(different))


def posebusters_verdicts(molecule: Chem.Mol, reference: Chem.Mol, glycine: np.ndarray) -> dict[str, bool]:
    """Return the verdicts of PoseBusters with the parameters of its configuration `redock`."""
    import posebusters
    import yaml
    from posebusters.modules.distance_geometry import check_geometry
    from posebusters.modules.flatness import check_flatness
    from posebusters.modules.identity import check_identity
    from posebusters.modules.intermolecular_distance import check_intermolecular_distance
    from posebusters.modules.volume_overlap import check_volume_overlap

    path = Path(posebusters.__file__).parent / "config" / "redock.yml"
    modules = yaml.safe_load(path.read_text())["modules"]
    parameters: dict[str, Any] = {module["name"]: module.get("parameters", {}) for module in modules}
    geometry = check_geometry(molecule, **parameters["Geometry"])["results"]
    verdicts = {key: geometry[name] for key, name in GEOMETRY.items()}
    for key, name in FLATNESS.items():
        verdicts[key] = check_flatness(molecule, **parameters[name])["results"]["flatness_passes"]
    identity = check_identity(Chem.Mol(molecule), reference, inchi_options="w")["results"]
    verdicts["chirality"] = identity["stereo_tetrahedral"]
    verdicts["double_bond_stereo"] = identity["stereo_dbond"]
    residue = _with_positions(Chem.MolFromSequence("G"), np.vstack([glycine, glycine[-1]]))
    distance = check_intermolecular_distance(molecule, residue, **parameters["Distance to protein"])
    verdicts["clashes"] = distance["results"]["no_clashes"]
    overlap = check_volume_overlap(molecule, residue, **parameters["Volume overlap with protein"])
    verdicts["volume_overlap"] = overlap["results"]["no_volume_clash"]
    return {key: bool(value) for key, value in verdicts.items()}


if __name__ == "__main__":
    RDLogger.DisableLog("rdApp.*")
    options = parse_options(__doc__, "side", "folder")
    {"ours": write_ours, "theirs": compare}[str(options.side)](options.folder)
