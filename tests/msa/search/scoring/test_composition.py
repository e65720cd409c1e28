"""Tests of the correction for the composition of aligned regions, against its definition."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTERS, MASK_BIT, encode
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import GUMBEL_TABLES, GumbelParameters, gumbel_parameters
from msa.profile.pssm import query_profile
from msa.profile.statistics import evalues
from msa.search.database_search import search
from msa.search.scoring import composition
from msa.search.scoring.composition import SEQUENCE_CHANCE_FRACTION, SEQUENCE_K_FACTOR, composition_excess

STANDARD = "ACDEFGHIKLMNPQRSTVWY"
COILED = "EEKLKELEEKLKELKEKLEE"
PARAMETERS = gumbel_parameters(12, 1, "CONTEXT")


def expected_excess(profile: np.ndarray, target: np.ndarray, record: list[int], matrix: str) -> float:
    """Compute the correction of one alignment, in the matrix's unit and not rounded, from its definition."""
    _, first, last, target_first, target_last = record[:5]
    lambda_ = GUMBEL_TABLES[matrix].ungapped_lambda
    bias = 0.0
    for code in target[target_first : target_last + 1].tolist():
        letter = code & ~MASK_BIT
        if letter < 20:
            odds = [math.exp(lambda_ * int(profile[i, letter])) for i in range(first, last + 1)]
            bias += math.log(sum(odds) / len(odds))
    return math.log1p(math.exp(bias) / 256) / PARAMETERS.lambda_


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(["BLOSUM62", "PAM30"]))
def test_excess_equals_its_definition(seed: int, matrix: str) -> None:
    rng = np.random.default_rng(seed)
    # letters of all kinds, masked ones too, and compositions from even to extreme
    shares = rng.dirichlet(np.full(len(LETTERS), rng.choice([0.1, 0.5, 5.0])))
    query = rng.choice(len(LETTERS), rng.integers(2, 60), p=shares).astype(np.uint8)
    codes = [rng.choice(len(LETTERS), rng.integers(1, 80), p=shares).astype(np.uint8) for _ in range(5)]
    codes = [each | (MASK_BIT * rng.integers(0, 2, len(each))).astype(np.uint8) for each in codes]
    profile = query_profile(query, False, matrix)
    targets, indices = SequenceArrays.concatenate(codes), rng.permutation(5)
    paths = align(profile, query, targets, indices)
    aligned = np.flatnonzero(paths.records[:, 0] > 0)
    paths, indices = paths.subset(aligned), indices[aligned]
    owners = np.zeros(len(indices), np.int64)
    excess = composition_excess(
        [profile], owners, paths.records, targets, indices, matrix, PARAMETERS.lambda_
    )
    assert excess.dtype == np.int64 and excess.shape == indices.shape
    for k, index in enumerate(indices.tolist()):
        expected = expected_excess(profile, codes[index], paths.records[k].tolist(), matrix)
        assert abs(excess[k] - expected) <= 0.5 + 2e-6


def test_only_biased_regions_lose_score() -> None:
    rng = np.random.default_rng(0)
    even = encode("".join(rng.permutation(list(STANDARD * 5))))
    biased = encode("".join(rng.permutation(list(COILED * 5))))
    for query, low, high in ((even, 0, 2), (biased, 80, 300)):
        profile, targets = query_profile(query, False), SequenceArrays.concatenate([query])
        paths = align(profile, query, targets, np.array([0]))
        index = np.array([0])
        (excess,) = composition_excess(
            [profile], index, paths.records, targets, index, "BLOSUM62", PARAMETERS.lambda_
        )
        assert low <= excess <= high < paths.records[0, 0]


def test_no_alignments_have_no_excess() -> None:
    empty = SequenceArrays.concatenate([])
    none = np.empty(0, np.int64)
    arguments = none, np.empty((0, 8), np.int32), empty, none, "BLOSUM62", 0.267
    assert composition_excess([query_profile(encode("MKV"), False)], *arguments).tolist() == []
    assert composition_excess([], *arguments).tolist() == []


@pytest.mark.parametrize("max_residues", [1, 150, 10**6])
def test_excess_does_not_depend_on_the_other_alignments(
    monkeypatch: pytest.MonkeyPatch, max_residues: int
) -> None:
    monkeypatch.setattr(composition, "_MAX_RESIDUES", max_residues)
    rng = np.random.default_rng(5)
    queries = [encode("".join(rng.choice(list(COILED), length))) for length in (40, 1, 90)]
    profiles = [query_profile(query, False) for query in queries]
    targets = SequenceArrays.concatenate([encode("".join(rng.choice(list(COILED), 70))) for _ in range(9)])
    owners, indices = rng.integers(0, 3, 30), rng.integers(0, 9, 30)
    pairs = list(zip(owners.tolist(), indices.tolist(), strict=True))
    records = np.concatenate(
        [align(profiles[k], queries[k], targets, np.array([index])).records for k, index in pairs]
    )
    end = "BLOSUM62", PARAMETERS.lambda_
    together = composition_excess(profiles, owners, records, targets, indices, *end)
    each = []
    for row, (k, index) in enumerate(pairs):
        alignment = np.array([0]), records[row : row + 1], targets, np.array([index])
        each += composition_excess([profiles[k]], *alignment, *end).tolist()
    assert together.tolist() == each
    assert len(set(together.tolist())) > 5


def mutated(sequence: str, kept: float, rng: np.random.Generator) -> str:
    """Replace residues at random positions; each is kept with probability `kept`."""
    letters, others = np.array(list(sequence)), rng.choice(list(STANDARD), len(sequence))
    return "".join(np.where(rng.random(len(letters)) < kept, letters, others))


@pytest.fixture(scope="module")
def query() -> FastaRecord:
    """Create a query whose second half is a charged stretch."""
    rng = np.random.default_rng(1)
    charged = "".join(rng.permutation(list(COILED * 4)))
    return FastaRecord("query", "".join(rng.choice(list(STANDARD), 90)) + charged)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, query: FastaRecord) -> TargetDatabase:
    """Create a database of relatives, charged sequences, palindromes, and random sequences."""
    rng = np.random.default_rng(2)
    records = [(f"relative{k}", mutated(query.sequence, 0.3 + 0.03 * k, rng)) for k in range(12)]
    records += [(f"charged{k}", "".join(rng.permutation(list(COILED * 6)))) for k in range(60)]
    records += [(f"reversed{k}", mutated(query.sequence[::-1], 0.7, rng)) for k in range(3)]
    records += [(f"noise{k}", "".join(rng.choice(list(STANDARD), 200))) for k in range(200)]
    folder = tmp_path_factory.mktemp("composition")
    (folder / "t.fasta").write_text("".join(f">{name}\n{text}\n" for name, text in records))
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    return TargetDatabase.open(folder / "db")


def brute_force(
    query: FastaRecord, database: TargetDatabase, parameters: GumbelParameters
) -> list[tuple[float, int, int]]:
    """Return E-value, negative raw score and index of every target, best first, from the definitions."""
    codes, targets = encode(query.sequence), database.arrays
    profile, everything = query_profile(codes, False, "CONTEXT"), np.arange(len(targets))
    records = align(profile, codes, targets, everything, 12, 1).records
    reversed_scores = alignment_scores(np.ascontiguousarray(profile[::-1]), targets, everything, 12, 1)
    found = []
    for index in everything.tolist():
        score, length = int(records[index, 0]), int(targets.lengths[index])
        pairs = max(parameters.k * len(codes) * length, 0.2 * math.exp(9)) / SEQUENCE_CHANCE_FRACTION
        of_reversed = int(reversed_scores[index]) - math.ceil(math.log(pairs) / parameters.lambda_)
        of_composition = math.floor(
            expected_excess(profile, targets.codes(index), records[index].tolist(), "CONTEXT") + 0.5
        )
        corrected = np.array([max(score - max(of_reversed, of_composition, 0), 0)])
        scaled = replace(parameters, k=parameters.k * SEQUENCE_K_FACTOR)
        arguments = len(codes), np.array([length]), database.total_residues, scaled
        mean = database.total_residues / len(database)
        factor = length / (1.2 * mean * max(140 / len(codes), 1))
        found.append((float(evalues(corrected, *arguments)[0]) * factor, -score, index))
    return sorted(found)


@pytest.mark.parametrize("max_seqs", [5, 15, 300])
def test_hits_equal_brute_force(query: FastaRecord, database: TargetDatabase, max_seqs: int) -> None:
    passing = [each for each in brute_force(query, database, PARAMETERS) if each[0] <= 10]
    hits = search(query, database, SearchSettings(evalue=10, max_seqs=max_seqs))
    found = [(hit.evalue, -hit.alignment.score, hit.target) for hit in hits]
    assert found == passing[:max_seqs]
    assert hits.capped == (len(passing) > max_seqs)


def test_charged_sequences_do_not_take_the_place_of_relatives(
    query: FastaRecord, database: TargetDatabase
) -> None:
    plain = search(query, database, SearchSettings(max_seqs=300, comp_bias_corr=False))
    assert sum(hit.id.startswith("charged") for hit in plain) > 20
    hits = search(query, database, SearchSettings(max_seqs=8))
    assert [hit.id[:-1].rstrip("1") for hit in hits] == ["relative"] * 8


def test_cluster_members_need_a_representative_that_passes(tmp_path: Path, query: FastaRecord) -> None:
    rng = np.random.default_rng(3)
    charged = "".join(rng.permutation(list(COILED * 6)))
    records = [("charged", charged), ("relative", mutated(query.sequence, 0.8, rng))]
    records += [(f"noise{k}", "".join(rng.choice(list(STANDARD), 200))) for k in range(50)]
    (tmp_path / "t.fasta").write_text("".join(f">{name}\n{text}\n" for name, text in records))
    clusters = [("charged", "relative")] + [(name, name) for name, _ in records if name != "relative"]
    (tmp_path / "clusters.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in clusters))
    build_database(
        [tmp_path / "t.fasta"], tmp_path / "db",
        BuildSettings(mask=False, threads=1, clusters=tmp_path / "clusters.tsv"),
    )  # fmt: skip
    database = TargetDatabase.open(tmp_path / "db")
    plain = search(query, database, SearchSettings(comp_bias_corr=False))
    assert {hit.id for hit in plain} == {"charged", "relative"}
    assert len(search(query, database)) == 0
