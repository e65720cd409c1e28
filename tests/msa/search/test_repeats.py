"""Tests with coiled coils: shared periodicity and composition alone must not make hits or family members."""

from collections.abc import Sequence

import numpy as np
import pytest

from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hit
from msa.io.fasta import FastaRecord
from msa.search.database_search import search
from tests.msa.search.coiled_coils import TROPOMYOSIN, coil

STANDARD = list("ACDEFGHIKLMNPQRSTVWY")
UNRELATED = 100


def relative(sequence: str, rng: np.random.Generator) -> str:
    """Replace a third of the residues."""
    letters = np.array(list(sequence))
    return "".join(np.where(rng.random(len(letters)) < 0.33, rng.choice(STANDARD, len(letters)), letters))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> TargetDatabase:
    """Create a database of unrelated coiled coils, relatives of tropomyosin, and random sequences."""
    rng = np.random.default_rng(2)
    records = [(f"coil{k}", coil(k)) for k in range(UNRELATED)]
    records += [(f"relative{k}", relative(TROPOMYOSIN, rng)) for k in range(5)]
    records += [(f"noise{k}", "".join(rng.choice(STANDARD, 300))) for k in range(400)]
    folder = tmp_path_factory.mktemp("coils")
    (folder / "targets.fasta").write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    build_database([folder / "targets.fasta"], folder / "db", BuildSettings(threads=1))
    return TargetDatabase.open(folder / "db")


def count_kind(hits: Sequence[Hit], kind: str) -> int:
    """Count the hits of one kind of target."""
    return sum(hit.id.startswith(kind) for hit in hits)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_coiled_coil_finds_only_its_relatives(database: TargetDatabase, iterations: int) -> None:
    query = FastaRecord("TPM1", TROPOMYOSIN)
    settings = SearchSettings(evalue=0.1, num_iterations=iterations)
    found = search(query, database, settings)
    assert count_kind(found, "relative") == 5
    assert count_kind(found[:5], "relative") == 5
    # 0.1 unrelated coils are expected at E ≤ 0.1; without the correction, about half of them are hits
    assert count_kind(found, "coil") <= UNRELATED // 10
    assert count_kind(found, "noise") == 0


def test_coiled_coil_finds_unrelated_coiled_coils_without_the_correction(database: TargetDatabase) -> None:
    settings = SearchSettings(evalue=0.1, comp_bias_corr=False)
    assert count_kind(search(FastaRecord("TPM1", TROPOMYOSIN), database, settings), "coil") > UNRELATED * 0.4
