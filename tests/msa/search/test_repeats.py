"""Coiled coils: what only shares their periods and composition is not found, nor let into a profile."""

from collections.abc import Sequence

import numpy as np
import pytest

from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.hits import Hit
from msa.search.search import SearchSettings, search

# human tropomyosin 1 (P09493), residues 1 to 120: a coiled coil
TROPOMYOSIN = (
    "MDAIKKKMQMLKLDKENALDRAEQAEADKKAAEDRSKQLEDELVSLQKKLKGTEDELDKYSEALKDAQEKLELAEKKATDAEADVASLNRRIQLVEEELDR"
    "AQERLATALQKLEEAEKAA"
)
HEPTAD = ("LLIVA", "EKRQNTS", "EKRQAD", "LLAVMY", "EKQASR", "EKRDQA", "EKRQNH")
"""Residues at the seven places of a coiled coil's turn."""
STANDARD = list("ACDEFGHIKLMNPQRSTVWY")
UNRELATED = 100


def coil(seed: int) -> str:
    """A coiled coil of 140 residues that is related to no other."""
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(list(HEPTAD[(k + seed) % 7])) for k in range(140))


def relative(sequence: str, rng: np.random.Generator) -> str:
    """A third of the residues replaced."""
    letters = np.array(list(sequence))
    return "".join(np.where(rng.random(len(letters)) < 0.33, rng.choice(STANDARD, len(letters)), letters))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> TargetDatabase:
    """Coiled coils that nothing is related to, relatives of tropomyosin's, and sequences of no kind."""
    rng = np.random.default_rng(2)
    records = [(f"coil{k}", coil(k)) for k in range(UNRELATED)]
    records += [(f"relative{k}", relative(TROPOMYOSIN, rng)) for k in range(5)]
    records += [(f"noise{k}", "".join(rng.choice(STANDARD, 300))) for k in range(400)]
    folder = tmp_path_factory.mktemp("coils")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(threads=1))
    return TargetDatabase.open(folder / "db")


def of_kind(hits: Sequence[Hit], kind: str) -> int:
    return sum(hit.id.startswith(kind) for hit in hits)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_coiled_coil_finds_its_relatives(database: TargetDatabase, iterations: int) -> None:
    query = FastaRecord("TPM1", TROPOMYOSIN)
    settings = SearchSettings(evalue=0.1, num_iterations=iterations)
    found = search(query, database, settings)
    assert of_kind(found, "relative") == 5
    assert of_kind(found[:5], "relative") == 5
    # at E ≤ 0.1 a tenth of one is expected; without the correction half of them are found
    assert of_kind(found, "coil") <= UNRELATED // 20
    assert of_kind(found, "noise") == 0


def test_without_the_correction_it_finds_the_others(database: TargetDatabase) -> None:
    settings = SearchSettings(evalue=0.1, comp_bias_corr=False)
    assert of_kind(search(FastaRecord("TPM1", TROPOMYOSIN), database, settings), "coil") > UNRELATED * 0.4
