"""MMseqs2 databases as queries: sequences, and profiles converted to residue frequencies."""

from pathlib import Path

import numpy as np
import pytest

from foldcli.inputs.queries import read_queries
from msa.alphabet import STANDARD
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord
from msa.mmseqs.files import PADDED_LETTERS
from msa.profile.matrices import background
from msa.profile.pssm import ProfileRecord, profile_from_frequencies
from tests.msa.mmseqs.writer import write

RECORDS = [("one first", "MKVLAAGG"), ("two", "MKXVV"), ("three", "WWW")]


def write_profiles(folder: Path, scores: list[np.ndarray], width: int = 25) -> Path:
    """Write profiles of RECORDS; scores int8 [length, 20] each, residues in MMseqs2's order."""
    name = write(folder / "profiles", RECORDS)
    data, lines = b"", []
    for key, ((_, sequence), matrix) in enumerate(zip(RECORDS, scores, strict=True)):
        rows = np.zeros((len(sequence), width), np.int8)
        rows[:, :20] = matrix
        rows[:, 20] = [PADDED_LETTERS.index(letter) for letter in sequence]
        entry = rows.tobytes() + b"\0"
        lines.append(f"{key}\t{len(data)}\t{len(entry)}\n")
        data += entry
    name.write_bytes(data)
    Path(f"{name}.index").write_text("".join(lines))
    Path(f"{name}.dbtype").write_bytes(b"\2\0\0\0")
    return name


def random_scores() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(-40, 40, (len(sequence), 20)).astype(np.int8) for _, sequence in RECORDS]


@pytest.mark.parametrize("padded", [False, True])
def test_sequences_become_fasta_records(tmp_path: Path, padded: bool) -> None:
    assert read_queries(write(tmp_path / "db", RECORDS, padded=padded)) == [FastaRecord(*r) for r in RECORDS]


@pytest.mark.parametrize("corrected", [True, False])
def test_profiles_become_profile_queries(tmp_path: Path, corrected: bool) -> None:
    scores = random_scores()
    scores[0][0, :2] = -128, 127
    queries = read_queries(write_profiles(tmp_path, scores), corrected)
    assert [(query.header, query.sequence) for query in queries] == RECORDS
    for query, matrix in zip(queries, scores, strict=True):
        assert isinstance(query, ProfileRecord)
        frequencies = [
            [background()[STANDARD.index(a)] * 2 ** (row[PADDED_LETTERS.index(a)] / 8) for a in STANDARD]
            for row in matrix.astype(float)
        ]
        expected = profile_from_frequencies(np.array(frequencies), corrected)
        np.testing.assert_array_equal(query.profile, expected)


def test_background_frequencies_score_zero() -> None:
    zero = profile_from_frequencies(np.tile(background()[:20] * 7, (5, 1)), False)
    assert not zero[:, :20].any()


def test_damage_is_reported_with_file_and_reason(tmp_path: Path) -> None:
    scores = random_scores()
    name = write_profiles(tmp_path, scores, width=23)
    with pytest.raises(InputError, match=r"the profile with key 0 has 184 bytes, not a multiple of 25"):
        read_queries(name)
    name = write_profiles(tmp_path, scores)
    data = bytearray(name.read_bytes())
    data[20] = 21
    name.write_bytes(data)
    with pytest.raises(InputError, match=r"damaged: an invalid residue in the entry with key 0"):
        read_queries(name)
    name.write_bytes(data[:-5])
    with pytest.raises(InputError, match=r"truncated: \d+ bytes, but the entry with key 2 ends at byte"):
        read_queries(name)
    name = write_profiles(tmp_path, scores)
    Path(f"{name}_h.index").unlink()
    with pytest.raises(InputError, match=r"_h.index: incomplete MMseqs2 database: this file is missing"):
        read_queries(name)
    Path(f"{name}.dbtype").write_bytes(b"\6\0\0\0")
    with pytest.raises(InputError, match="this MMseqs2 database holds clusters"):
        read_queries(name)
