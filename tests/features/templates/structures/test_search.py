"""Searches by structure find chains of the same fold, the same ones on a CPU and a GPU."""

from pathlib import Path

import numpy as np
import pytest

from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.states import library_states
from features.templates.structures.scores import joint_codes, joint_profile, residue_codes
from features.templates.structures.search import StructureSearchSettings, search_structures
from msa.cpu.engine import CpuEngine
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import Engine
from msa.gpu.worker.interface import GpuSettings
from msa.search.engine_selection import create_engine

Row = tuple[str, int, float, bytes]


def found_rows(engine: Engine, names: list[str], cache: Path) -> dict[str, list[Row]]:
    library = StructureLibrary.open(EMBEDDED)
    queries = [library.chain(library.find(name) or 0) for name in names]
    states = library_states(library, cache)
    results = search_structures(queries, library, states, engine, StructureSearchSettings())
    return {
        query.id: [(hit.id, hit.alignment.score, hit.evalue, hit.alignment.runs.tobytes()) for hit in hits]
        for query, hits in results
    }


def test_lysozyme_finds_lactalbumin_and_a_gtpase_its_family(tmp_path: Path) -> None:
    rows = found_rows(CpuEngine(), ["1b5u_A", "1f6b_B"], tmp_path)
    lysozyme = [row[0] for row in rows["1b5u_A"]]
    assert lysozyme[0] == "1b5u_A"
    assert {"1b9o_A", "1f6r_A"} < set(lysozyme)
    # Ras and Rab, at less than a fifth of identical residues
    assert {"1ek0_A", "1c1y_A"} < {row[0] for row in rows["1f6b_B"]}
    for hits in rows.values():
        assert [row[2] for row in hits] == sorted(row[2] for row in hits)
        assert hits[0][2] < 1e-10


@pytest.mark.gpu
def test_a_gpu_finds_the_same_hits(tmp_path: Path) -> None:
    names = [StructureLibrary.open(EMBEDDED).database.id(k) for k in range(0, 6127, 300)]
    gpu = create_engine("cuda", GpuSettings(tmp_path), on_fallback=pytest.fail)
    assert found_rows(gpu, names, tmp_path) == found_rows(CpuEngine(), names, tmp_path)


def test_joint_alignment_is_that_of_a_plain_recursion() -> None:
    generator = np.random.default_rng(3)
    query, target = ((generator.integers(0, 21, n), generator.integers(0, 21, n)) for n in (37, 52))
    profile = joint_profile(*query)
    letters = joint_codes(*target)
    targets = SequenceArrays.concatenate([letters])
    paths = align(profile, joint_codes(*query), targets, np.array([0]), 10, 1)
    best = np.zeros((38, 53))
    insertions, deletions = np.full((38, 53), -np.inf), np.full((38, 53), -np.inf)
    for i in range(1, 38):
        for j in range(1, 53):
            insertions[i, j] = max(best[i - 1, j] - 10, insertions[i - 1, j] - 1)
            deletions[i, j] = max(best[i, j - 1] - 10, deletions[i, j - 1] - 1)
            pair = best[i - 1, j - 1] + profile[i - 1, letters[j - 1]]
            best[i, j] = max(0, pair, insertions[i, j], deletions[i, j])
    assert paths.records[0, 0] == best.max() > 0


def test_residues_beyond_the_standard_twenty_are_unknown() -> None:
    assert residue_codes("AXUV").tolist() == [0, 20, 20, 19]
