"""Small results in the form that a run writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from foldcli.outputs.layout import TargetFiles
from model import residue_constants
from model.output.provenance import Provenance
from model.output.residues import format_contacts, format_mmcif, format_pdb
from model.output.scores import format_scores
from model.prediction import InterfaceContacts
from msa.base.residues import ATOM_ORDER
from tests.complex_scores import made_up_scores
from tests.predictions import protein_prediction

SEQUENCE = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQ"
LETTERS = {
    "A": "ALA", "R": "ARG", "N": "ASN", "D": "ASP", "C": "CYS", "Q": "GLN", "E": "GLU", "G": "GLY",
    "H": "HIS", "I": "ILE", "L": "LEU", "K": "LYS", "M": "MET", "F": "PHE", "P": "PRO", "S": "SER",
    "T": "THR", "W": "TRP", "Y": "TYR", "V": "VAL",
}  # fmt: skip
COMPLEX_TAG = "alphafold2_multimer_v3_model_1_seed_000"
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
        "warnings": [*warnings, *(["UNTRAINED network"] if untrained else [])],
        "ranking": ranking,
        "stages": [{"stage": "predict", "seconds": 83.0, "peak_memory_bytes": 2**30}],
    }
    (folder / f"{name}.done.json").write_text(json.dumps(done))
    return folder


def add_network_facts(done: Path, **expected: Any) -> None:
    """Add templates and an expected accuracy to a done.json, as of the compact network."""
    content = json.loads(done.read_text())
    content["facts"]["templates"] = [{"id": "1ubq_A", "identity": 0.96}, {"id": "2abc_B", "identity": 0.4}]
    values = expected or {"lddt": 81.3, "percentile_10": 68.2, "percentile_90": 91.8}
    content["facts"]["network"] = {"name": "compact", "expected_lddt": values, "note": "About it."}
    done.write_text(json.dumps(content))


def write_complex(folder: Path, name: str = "target") -> Path:
    """Write the files of a model of chains A (12 residues), B (a copy of A) and C (7), as `fold` does.

    Residues 3 of A and B are in contact. The last residue of B is unknown, without atoms.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lengths, codes = (12, 12, 7), [12, 7, 10, 0, 11] * 5
    aatype = np.array([*codes[:12], *codes[:11], 20, *codes[:7]])
    ca = np.concatenate([helix(length, 9.0 * i) for i, length in enumerate(lengths)])
    mask = residue_constants.atom37_mask()[aatype].astype(np.float32)
    offsets = np.random.default_rng(0).normal(0, 1, (37, 3))
    offsets[ATOM_ORDER["CA"]] = 0
    count, total = len(lengths), sum(lengths)
    rng = np.random.default_rng(0)
    pairs = np.round(rng.uniform(0.1, 0.9, (count, count)), 2)
    asym_id = np.repeat(np.arange(1, count + 1), lengths)
    contacts = InterfaceContacts(
        np.array([2, 3]), np.array([14, 14]), np.array([3.4, 6.1], np.float32),
        np.array([[5.0, 7.0], [1.25, 2.0]], np.float32), total=2,
    )  # fmt: skip
    prediction = protein_prediction(
        aatype=aatype,
        residue_index=np.concatenate([np.arange(length) for length in lengths]),
        atom_positions=((ca[:, None] + offsets) * mask[..., None]).astype(np.float32),
        atom_mask=mask,
        plddt=np.linspace(95, 40, total),
        ptm=0.7,
        pae=(np.abs(np.subtract.outer(asym_id, asym_id)) * 9 + rng.uniform(0.5, 3, (total, total))).astype(
            np.float32
        ),
        num_recycles=3,
        tolerances=(1.0, 0.5, 0.2),
        asym_id=asym_id,
        scores=made_up_scores(pairs, contacts, 0.7, 0.64, 0.5),
    )
    provenance = Provenance(name, "foldcli 0", "a network")
    files, tag = target_files(folder, name), COMPLEX_TAG
    files.model_path("pdb", 1, tag).write_text(format_pdb(prediction, provenance))
    files.model_path("cif", 1, tag).write_text(format_mmcif(prediction, provenance))
    files.model_path("scores", 1, tag).write_text(format_scores(prediction))
    files.model_path("contacts", 1, tag).write_text(format_contacts(prediction))
    return folder
