"""Damaged job files are either read and filled in, or refused with an InputError."""

import json
import random
from pathlib import Path

import pytest
import yaml

from features.chemistry.residue_classes import MoleculeKind
from foldcli.exports.document import AlignmentFiles, ChainRows, ExportJob
from foldcli.exports.run import FORMATS
from msa.alignments.complex_a3m import A3mRow
from msa.base.errors import InputError
from tests.foldcli.exports.conftest import JOBS

_FILES = [
    (path.parent.name, path) for path in sorted(JOBS.rglob("*")) if path.is_file() and path.suffix != ".pqt"
]
_PIECES = [
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"\n", b" ", b"\\u00e9", b"null", b"1e9", b"\xff", b"- ", b"#",
    b"&a", b"*a", b"!!x", b"|", b">", b"(", b")", b"protein", b"sequence", b"msa: x", b"\xef\xbb\xbf",
]  # fmt: skip


def mutate(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(data))
        end = min(len(data), start + draw.choice([0, 1, 1, 5, 40]))
        data = data[:start] + draw.choice([b"", data[end : end + 30], draw.choice(_PIECES)]) + data[end:]
    return data


def rows_of(job: ExportJob, molecule: MoleculeKind) -> dict[str, ChainRows]:
    return {
        sequence: ChainRows([A3mRow("query", sequence), A3mRow("x", sequence)], [A3mRow("p", sequence), None])
        for sequence in job.sequences(molecule)
    }


@pytest.mark.slow
@pytest.mark.parametrize("tool, path", _FILES, ids=lambda value: str(value).rpartition("/")[2])
def test_mutated_jobs(tool: str, path: Path, tmp_path: Path) -> None:
    if tool == "chai":
        pytest.importorskip("pyarrow")
    draw, whole, filled = random.Random(7), path.read_bytes(), 0
    for _ in range(250):
        data = mutate(whole, draw)
        errors: list[InputError] = []
        try:
            document = FORMATS[tool].read(data, str(path), errors.append)
            for job in document.jobs:
                for molecule in (MoleculeKind.PROTEIN, MoleculeKind.RNA):
                    files = AlignmentFiles(tmp_path / "job.msa")
                    document.fill(job, molecule, rows_of(job, molecule), files)
            text = document.edited()
        except InputError as error:
            assert "\n" not in str(error)
            continue
        filled += bool(document.jobs)
        if tool == "boltz":
            yaml.compose(text.decode("utf-8-sig"), yaml.BaseLoader)
        elif tool != "chai":
            json.loads(text.decode("utf-8-sig"))
    assert filled > 20
