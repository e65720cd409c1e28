"""Record the scores of other programs, for which `peers.json` has those of `cases.py`.

Needs biotite, tmtools and DockQ, which needs an older numpy: `pip install biotite tmtools DockQ gemmi` in an
environment of its own, then `python record_peers.py`.
"""

import json
import tempfile
from pathlib import Path

import biotite.structure as struc
import numpy as np
import tmtools
from biotite.structure.io.pdb import PDBFile
from cases import write_cases
from DockQ.DockQ import load_PDB, run_on_all_native_interfaces

_FAR = 1e6  # Å, between atoms that the model lacks


def scores(model_path: Path, reference_path: Path) -> dict[str, float | None]:
    """Return lDDT, lDDT of CA, both RMSDs, TM-score and mean DockQ."""
    reference, model = (PDBFile.read(path).get_structure(model=1) for path in (reference_path, model_path))
    keys = [list(zip(a.chain_id, a.res_id, a.ins_code, a.atom_name, strict=True)) for a in (reference, model)]
    place = {key: k for k, key in enumerate(keys[1])}
    index = np.array([place.get(key, -1) for key in keys[0]])
    found = index >= 0
    padded = reference.copy()
    padded.coord[found] = model.coord[index[found]]
    padded.coord[~found] += _FAR * np.arange(1, (~found).sum() + 1)[:, None]
    ca = ((reference.atom_name == "CA") & (reference.element == "C")) | (reference.atom_name == "C3'")
    result: dict[str, float | None] = {
        "lddt": float(struc.lddt(reference, padded)),
        "lddt_ca": float(struc.lddt(reference[ca], padded[ca])),
    }
    for key, mask in (("rmsd", found), ("rmsd_ca", found & ca)):
        fitted, _ = struc.superimpose(reference[mask], padded[mask])
        result[key] = float(struc.rmsd(reference[mask], fitted))
    moved, fixed = padded.coord[found & ca].astype(float), reference.coord[found & ca].astype(float)
    letters = "A" * len(moved)
    aligned = tmtools.tm_align(moved, fixed, letters, letters)
    # with another alignment than ours, the score is not comparable
    if "-" not in aligned.seqxA and found[ca].all():
        result["tm_score"] = float(aligned.tm_norm_chain2)
    structures = [load_PDB(str(path)) for path in (model_path, reference_path)]
    chains = {chain.id: chain.id for chain in structures[1]}
    interfaces, total = run_on_all_native_interfaces(*structures, chain_map=chains, no_align=True)
    result["dockq"] = float(total / len(interfaces)) if interfaces else None
    return result


def main() -> None:
    """Write peers.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {
            case: {
                key: None if value is None else round(value, 4)
                for key, value in scores(folder / f"{case}_mod.pdb", folder / f"{case}_ref.pdb").items()
            }
            for case in write_cases(folder)
        }
    lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(row)}" for case, row in rows.items())
    Path(__file__).with_name("peers.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
