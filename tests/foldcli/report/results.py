"""Small results in the form that a run writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from foldcli.outputs.layout import TargetFiles

SEQUENCE = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQ"
LETTERS = {
    "A": "ALA", "R": "ARG", "N": "ASN", "D": "ASP", "C": "CYS", "Q": "GLN", "E": "GLU", "G": "GLY",
    "H": "HIS", "I": "ILE", "L": "LEU", "K": "LYS", "M": "MET", "F": "PHE", "P": "PRO", "S": "SER",
    "T": "THR", "W": "TRP", "Y": "TYR", "V": "VAL",
}  # fmt: skip
HOSTILE = "<script>alert(1)</script>&\"'`</style>‮]]>"


def target_files(folder: Path, name: str = "target") -> TargetFiles:
    """Return the files that `write_result` writes."""
    return TargetFiles(name, folder, "single_folder")


def helix(count: int, shift: float) -> np.ndarray:
    """Return the Cα coordinates of an ideal helix, [N, 3] in Å."""
    i = np.arange(count)
    return np.stack(
        [2.3 * np.cos(np.radians(100) * i) + shift, 2.3 * np.sin(np.radians(100) * i), 1.5 * i], 1
    )


def pdb(sequence: str, ca: np.ndarray, plddt: np.ndarray) -> str:
    """Return a PDB file with Cα atoms only."""
    lines = []
    for i, (letter, (x, y, z), value) in enumerate(zip(sequence, ca, plddt, strict=True), 1):
        position = f"{x:8.3f}{y:8.3f}{z:8.3f}"
        lines.append(
            f"ATOM  {i:5d}  CA  {LETTERS[letter]} A{i:4d}    {position}  1.00{value:6.2f}           C  \n"
        )
    return "".join(lines) + "END\n"


def write_result(
    folder: Path,
    name: str = "target",
    sequence: str = SEQUENCE,
    models: int = 2,
    pae: bool = True,
    untrained: bool = False,
    header: str | None = None,
    hits: tuple[str, ...] = ("near", "far"),
    warnings: tuple[str, ...] = (),
) -> Path:
    """Write the files of a target as `foldcli fold` does, without report and plots.

    The model of rank r has pLDDT 101 − 10 r at the first residue and 35 at the last. Its PAE is
    |i − j| / 4 + r Å, plus 3 Å if the scored residue comes after the aligned residue.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count, ranking = len(sequence), []
    for rank in range(1, models + 1):
        tag = f"alphafold2_ptm_model_{rank}_seed_000"
        plddt = np.linspace(101 - 10 * rank, 35, count)
        scores: dict[str, Any] = {"plddt": plddt.round(2).tolist()}
        if pae:
            error = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) / 4 + rank
            error = np.minimum(error + 3 * np.triu(np.ones((count, count)), 1), 31.75)
            scores |= {
                "pae": error.round(2).tolist(),
                "max_pae": float(error.max()),
                "ptm": round(0.9 - rank / 10, 2),
            }
        if untrained:
            scores |= {"untrained": True}
        (folder / f"{name}_scores_rank_{rank:03d}_{tag}.json").write_text(json.dumps(scores))
        structure = pdb(sequence, helix(count, rank), plddt)
        (folder / f"{name}_unrelaxed_rank_{rank:03d}_{tag}.pdb").write_text(structure)
        record = {"rank": rank, "tag": tag, "plddt": float(plddt.mean()), "ptm": scores.get("ptm")}
        ranking.append(record | {"num_recycles": 3, "seconds": 1.5})
    rows, table = [f">{header or name}\n{sequence}\n"], []
    for hit in hits:
        # with an insertion after residue 5, and without the last ten residues
        row = sequence[:5] + "www" + sequence[5:-10].replace("K", "R") + "-" * 10
        last = count - 10
        rows.append(f">{hit}\t90\t0.900\t1.0E-20\t0\t{last - 1}\t{count}\t4\t{last + 6}\t200\n{row}\n")
        table.append(f"{name}\t{hit}\t0.900\t{last + 3}\t3\t1\t1\t{last}\t5\t{last + 7}\t1.0E-20\t90\n")
    (folder / f"{name}.a3m").write_text("".join(rows))
    (folder / f"{name}.m8").write_text("".join(table))
    done = {
        "format": 1,
        "name": name,
        "fingerprint": "0" * 64,
        "settings": {
            "query": sequence,
            "header": header or name,
            "predict": {"num_recycle": 3, "rank": "auto"},
        },
        "versions": {"foldcli": "9.8.7", "torch": "2.11.0"},
        "facts": {"residues": count, "alignment_rows": len(rows)},
        "warnings": [*warnings, *(["UNTRAINED demonstration network"] if untrained else [])],
        "ranking": ranking,
        "stages": [{"stage": "predict", "seconds": 83.0, "peak_memory_bytes": 2**30}],
    }
    (folder / f"{name}.done.json").write_text(json.dumps(done))
    return folder
