"""Fixtures: the records under examples/, and the family of each record of demo.fasta."""

import re
from pathlib import Path

import pytest

from msa.io.fasta import FastaRecord, read_fasta

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# the start of every id in demo.fasta matches exactly one of these patterns
FAMILIES = {
    "ubiquitin": r"UBIQ_|RS27A_|RL40A?_|NEDD8_|RUB1_|ISG15_|SUMO\d_|SMT3_|\w+_UBL$|RS30_|ELOB_|URM1_"
    r"|ATG8_|GBRAP_",
    "globin": r"MYG_|HB[ABDE]1?_|HBG\d_|HBAZ_|NGB_|GLB[135]?_|LGB[2A]_|BAHG_",
    "lysozyme": r"LYSC\d?_|LALBA_",
    "cytochrome c": r"CYC\d?_|CY551_",
    "thioredoxin": r"THIO\d?_|TRX2_|TRXM_|DSBA_",
    "glutaredoxin": r"GLRX\d?_",
    "protein G": r"SPG[12]_STRSG$|SPG[12]_STRSG_[BC]\d$",
    "GA module": r"SPG2_STRSG_GA3|PAB_",
    "protein L": r"PROTL_",
    "protein A": r"SPA_STAAU_",
    "other": r"INS_|RNAS1_|BPT1_|CALM1_|SPTN1_|RNBR_|BARS_|CRAM_|FKB1A_|PPIA_|CSPA_|ENLYS_|NUC_|PLAS1_|GFP_",
}


@pytest.fixture(scope="session")
def queries() -> dict[str, FastaRecord]:
    """Return the four single-protein examples by file name."""
    names = ("ubiquitin", "myoglobin", "lysozyme", "gb1")
    records = {name: list(read_fasta(EXAMPLES / f"{name}.fasta")) for name in names}
    assert all(len(members) == 1 for members in records.values())
    return {name: members[0] for name, members in records.items()}


@pytest.fixture(scope="session")
def records() -> list[FastaRecord]:
    """Return the records of demo.fasta in order."""
    return list(read_fasta(EXAMPLES / "demo.fasta"))


@pytest.fixture(scope="session")
def demo(records) -> dict[str, str]:
    """Return the sequences of demo.fasta by id."""
    return {record.id: record.sequence for record in records}


@pytest.fixture(scope="session")
def families(demo) -> dict[str, dict[str, str]]:
    """Return the sequences of demo.fasta by family and id."""
    members: dict[str, dict[str, str]] = {family: {} for family in FAMILIES}
    for name, sequence in demo.items():
        matching = [family for family, pattern in FAMILIES.items() if re.match(pattern, name)]
        assert len(matching) == 1, f"{name} belongs to {matching}"
        members[matching[0]][name] = sequence
    return members


@pytest.fixture(scope="session")
def examples_dir() -> Path:
    """Return the folder examples/."""
    return EXAMPLES
