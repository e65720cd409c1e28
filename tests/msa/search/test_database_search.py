"""Tests of a single search: the hits, their order, and their scores."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import encode
from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.search_settings import SearchSettings
from msa.hits.filtered_targets import best_targets
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import query_profile
from msa.profile.statistics import bit_scores, evalues
from msa.search.database_search import search

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
LYSOZYME = (
    "KVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQATNRNTDGSTDYGILQINSRWWCNDGRTPGSRNLCNIPCSALLSSDITASVNCAKKIVSDG"
    "NGMNAWVAWRNRCKGTDVQAWIRGCRL"
)
QUERY = FastaRecord("ubiquitin human", UBIQUITIN)


def build(folder: Path, records: list[tuple[str, str]], mask: bool = False) -> TargetDatabase:
    fasta = folder / "targets.fasta"
    fasta.write_text("".join(f">{header}\n{sequence}\n" for header, sequence in records))
    build_database([fasta], folder / "db", BuildSettings(mask=mask, threads=1))
    return TargetDatabase.open(folder / "db")


@pytest.fixture
def database(tmp_path: Path) -> TargetDatabase:
    rng = np.random.default_rng(0)
    noise = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 120)) for _ in range(30)]
    records = [(f"noise{i}", sequence) for i, sequence in enumerate(noise)]
    records += [("nedd8 NEDD8_HUMAN", NEDD8), ("lysozyme", LYSOZYME), ("ubq again", UBIQUITIN)]
    records += [("polyubiquitin", "MKKA" + UBIQUITIN * 3), ("half", UBIQUITIN[:40] + noise[0][:60])]
    return build(tmp_path, records)


def test_search_finds_the_family_in_order(database: TargetDatabase) -> None:
    hits = search(QUERY, database)
    assert [hit.id for hit in hits] == ["ubq", "polyubiquitin", "nedd8", "half"]
    assert [hit.header for hit in hits][2] == "nedd8 NEDD8_HUMAN"
    own = hits[0]
    assert (
        own.alignment.query_start,
        own.alignment.query_end,
        own.alignment.target_start,
        own.alignment.target_end,
        own.alignment.cigar,
    ) == (1, 76, 1, 76, "76M")
    assert own.identity == own.query_coverage == own.target_coverage == 1
    # the first of three equal copies is reported
    assert (hits[1].alignment.target_start, hits[1].alignment.target_end) == (5, 80)


def test_evalues_refer_to_the_whole_database(database: TargetDatabase) -> None:
    parameters = gumbel_parameters(12, 1, "CONTEXT")
    for hit in search(QUERY, database, SearchSettings(comp_bias_corr=False)):
        score, length = np.array([hit.alignment.score]), np.array([hit.target_length])
        assert hit.bits == bit_scores(score, parameters)[0]
        assert hit.evalue == evalues(score, 76, length, int(database.arrays.lengths.sum()), parameters)[0]


def test_hits_are_ordered_by_evalue_then_score_then_index(tmp_path: Path) -> None:
    # three equal targets, and a longer one with the same score and therefore a larger E-value
    records = [("b", UBIQUITIN), ("long", UBIQUITIN + "P" * 200), ("a", UBIQUITIN), ("c", UBIQUITIN)]
    hits = search(QUERY, build(tmp_path, records))
    assert [hit.id for hit in hits] == ["b", "a", "c", "long"]
    assert len({hit.alignment.score for hit in hits}) == 1


def test_result_does_not_depend_on_threads(database: TargetDatabase) -> None:
    one, three = (search(QUERY, database, SearchSettings(threads=n, evalue=1000)) for n in (1, 3))
    assert [(h.target, h.alignment.score, h.alignment.cigar, h.evalue) for h in one] == [
        (h.target, h.alignment.score, h.alignment.cigar, h.evalue) for h in three
    ]
    assert len(one) > 10


def test_thresholds_select_hits(database: TargetDatabase) -> None:
    def ids(**settings: float) -> set[str]:
        return {hit.id for hit in search(QUERY, database, SearchSettings(**settings))}  # type: ignore[arg-type]

    family = {"ubq", "polyubiquitin", "half", "nedd8"}
    assert ids() == family
    assert ids(min_seq_id=0.6) == family - {"nedd8"}
    assert ids(coverage=0.9) == {"ubq", "nedd8"}
    assert ids(coverage=0.9, cov_mode=1) == {"ubq", "nedd8"}
    assert ids(coverage=0.9, cov_mode=2) == {"ubq", "polyubiquitin", "nedd8"}
    assert ids(coverage=0.35, cov_mode=1) == family - {"polyubiquitin"}
    assert ids(max_seqs=2) == {"ubq", "polyubiquitin"}
    assert ids(min_ungapped_score=210) == family - {"half"}
    assert ids(evalue=0) == set()


def test_candidates_that_fail_do_not_take_the_place_of_hits(tmp_path: Path) -> None:
    # decoys share one segment with the query, which scores more without gaps than any segment of the relative
    # but is no hit; the relative has many segments with insertions between them
    rng = np.random.default_rng(3)

    def noise(length: int) -> str:
        return "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length))

    query = noise(140)
    relative = "".join(query[k : k + 10] + "GG" for k in range(0, 140, 10))
    records = [(f"decoy{k}", noise(50) + query[40:53] + noise(50)) for k in range(20)]
    settings = SearchSettings(max_seqs=5, evalue=1e-20, comp_bias_corr=False)
    hits = search(FastaRecord("q", query), build(tmp_path, [*records, ("relative", relative)]), settings)
    assert [hit.id for hit in hits] == ["relative"] and not hits.capped


def test_only_queries_with_more_hits_than_max_seqs_are_capped(database: TargetDatabase) -> None:
    def capped(**settings: float) -> bool:
        return search(QUERY, database, SearchSettings(**settings)).capped  # type: ignore[arg-type]

    assert capped(max_seqs=3) and not capped(max_seqs=4)
    # targets below a threshold of identity are no hits
    assert ids_above_threshold(database, 3) == {"ubq", "polyubiquitin", "half"}
    assert capped(max_seqs=2, min_seq_id=0.6) and not capped(max_seqs=3, min_seq_id=0.6)
    assert capped(max_seqs=3, num_iterations=3) and not capped(max_seqs=4, num_iterations=3)


def ids_above_threshold(database: TargetDatabase, max_seqs: int) -> set[str]:
    return {hit.id for hit in search(QUERY, database, SearchSettings(max_seqs=max_seqs, min_seq_id=0.6))}


def test_composition_correction_does_not_change_raw_scores(database: TargetDatabase) -> None:
    corrected, plain = (search(QUERY, database, SearchSettings(comp_bias_corr=on))[0] for on in (True, False))
    codes = encode(UBIQUITIN)
    profile = query_profile(codes, False, "CONTEXT")
    score = profile[np.arange(len(codes)), codes].sum()
    assert plain.alignment.score == score == corrected.alignment.score
    assert corrected.bits < plain.bits


def test_masked_targets_are_found_by_their_unmasked_residues(tmp_path: Path) -> None:
    # the target that consists of a repeat is masked and not found; the domain is found by its other residues,
    # and its repeat is aligned as well
    repeat = "PQ" * 40
    records = [("repeat", repeat), ("domain", UBIQUITIN[:38] + repeat + UBIQUITIN[38:])]
    query = FastaRecord("q", UBIQUITIN[:38] + repeat + UBIQUITIN[38:])
    settings = SearchSettings(comp_bias_corr=False)
    masked = search(query, build(tmp_path, records, mask=True), settings)
    assert [hit.id for hit in masked] == ["domain"]
    assert masked[0].identity == 1 and masked[0].alignment.columns == len(query.sequence)


@pytest.mark.parametrize(("sequence", "message"), [("", "no residues"), ("M", "1 residue")])
def test_too_short_query_is_rejected(database: TargetDatabase, sequence: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(FastaRecord("short", sequence), database)


def test_shortest_query_is_accepted(database: TargetDatabase) -> None:
    assert not search(FastaRecord("two", "WC"), database)


def test_gap_costs_without_statistics_are_rejected() -> None:
    with pytest.raises(InputError, match="no E-value statistics for CONTEXT with gap costs 5/5"):
        SearchSettings(gap_open=5, gap_extend=5)


def test_progress_ends_at_the_number_of_targets(database: TargetDatabase) -> None:
    seen: list[tuple[int, int | None]] = []
    search(QUERY, database, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(database), len(database))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=60),
    st.integers(1, 20),
    st.integers(0, 12),
    st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_best_targets_equal_full_sort(
    targets: list[tuple[int, int]], max_targets: int, min_score: int, longest: list[int] | None
) -> None:
    scores, lengths = np.array(targets, np.int32).reshape(-1, 2).T
    order = sorted(
        (-score, index)
        for index, (score, length) in enumerate(targets)
        if score >= min_score and (longest is None or length <= longest[min(score, len(longest) - 1)])
    )
    expected = [index for _, index in order][:max_targets]
    table = None if longest is None else np.array(longest, np.int32)
    assert best_targets(scores, max_targets, min_score, lengths, table).tolist() == expected
