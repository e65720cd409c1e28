"""A database of two protein families with one row per species, and exports of the job files in jobs/."""

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from msa.base.residues import RESTYPE_NAMES, RESTYPES
from tests.command_process import run_foldcli

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
JOBS = Path(__file__).parent / "jobs"
# residues that the two proteins have, so that their queries show how a program numbers them
_LETTERS = "ADEFGHIKLMNPQRSTVWY"


@dataclass(frozen=True)
class Family:
    """The database.

    Attributes:
        path: FASTA file.
        pairs: the sequences of both families of each species; rows of the alignments have no gaps.
    """

    path: Path
    pairs: frozenset[tuple[str, str]]


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Return the database, in which equal rows of two species stand for the species of one pair."""
    draw = random.Random(1)

    def relative(sequence: str, changes: int) -> str:
        letters = list(sequence)
        for position in draw.sample(range(2, len(letters) - 2), changes):
            letters[position] = draw.choice(_LETTERS)
        return "".join(letters)

    records, pairs = [], []
    for number, species in enumerate(("HUMAN", "MOUSE", "YEAST", "BOVIN", "ECOLI")):
        first, second = relative(UBIQUITIN, 4 + 3 * number), relative(GB1, 3 + 2 * number)
        records.append(f">sp|P0000{number}|UBQ_{species} OS=Species {species} OX={9000 + number}\n{first}\n")
        header = f">UniRef100_Q0000{number} n=1 TaxID={9000 + number} RepID=Q0000{number}_{species}"
        records.append(f"{header}\n{second}\n")
        pairs.append((first, second))
    shared, partner = relative(UBIQUITIN, 9), relative(GB1, 6)
    records.append(f">UniRef100_A1 n=1 TaxID=111 RepID=A1_ALONE\n{shared}\n")
    records.append(f">UniRef100_A2 n=1 TaxID=112 RepID=A2_TWICE\n{shared}\n")
    records.append(f">UniRef100_B2 n=1 TaxID=112 RepID=B2_TWICE\n{partner}\n")
    pairs.append((shared, partner))
    records += [f">noise{number}\n{''.join(draw.choices(_LETTERS, k=80))}\n" for number in range(20)]
    path = tmp_path_factory.mktemp("database") / "database.fasta"
    path.write_text("".join(records))
    return Family(path, frozenset(pairs))


@pytest.fixture(scope="session")
def export_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for these tests only."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def search(
    family: Family, export_cache: Path, tmp_path: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Return a function that searches job files for a program, with results in the folder out."""

    def run(
        tool: str, *arguments: object, out: Path = tmp_path / "out"
    ) -> "subprocess.CompletedProcess[str]":
        command = ["search", *arguments, family.path, "-o", out, "--format", tool, "-e", "1e-6"]
        # no folder of programs
        return run_foldcli(command, env={"FOLDCLI_CACHE": str(export_cache), "PATH": ""})

    return run


@pytest.fixture
def export(
    family: Family, export_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Return a function that exports a job file of jobs/, and returns the written one."""
    monkeypatch.setenv("FOLDCLI_CACHE", str(export_cache))

    def run(tool: str, name: str, *options: str, without: str | None = None) -> Path:
        (tmp_path / "jobs").mkdir(exist_ok=True)
        path = Path(shutil.copy(JOBS / tool / name, tmp_path / "jobs"))
        if without is not None:
            kept = [line for line in path.read_text().splitlines(keepends=True) if without not in line]
            path.write_text("".join(kept))
        arguments = [path, family.path, "-o", tmp_path / "out", "--format", tool, "-e", "1e-6", *options]
        result = run_foldcli(["search", *arguments])
        assert result.returncode == 0, result.stderr
        return tmp_path / "out" / name

    return run


@pytest.fixture(scope="session")
def structures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a backbone of ubiquitin, whose last three residues have no coordinates."""
    names = dict(zip(RESTYPES, RESTYPE_NAMES[:20], strict=True))
    lines, serial = [], 0
    for start in range(0, len(UBIQUITIN), 13):
        listed = " ".join(names[letter] for letter in UBIQUITIN[start : start + 13])
        lines.append(f"SEQRES {start // 13 + 1:3} A {len(UBIQUITIN):4}  {listed}")
    for number, letter in enumerate(UBIQUITIN[:73], 1):
        for offset, atom in enumerate(("N", "CA", "C", "O", "CB")[: 4 if letter == "G" else 5]):
            serial += 1
            lines.append(
                f"ATOM  {serial:5}  {atom:3} {names[letter]} A{number:4}    "
                f"{number * 3.6 + offset:8.3f}{offset % 2:8.3f}{0:8.3f}  1.00 10.00           {atom[0]}"
            )
    folder = tmp_path_factory.mktemp("structures")
    (folder / "1ubq.pdb").write_text("\n".join([*lines, "TER", "END", ""]))
    return folder
