"""Gotoh alignment on a GPU or in numba's simulator, compared with the CPU engine: all numbers and paths."""

import numpy as np
import pytest
from numba import cuda
from numba.core import config

from cuda.alignment import AlignmentPaths, DeviceSequences
from cuda.alignment.smith_waterman import Pairs, Shape, Shapes, end_positions, plan, sorting, trace_paths
from cuda.alignment.smith_waterman.generator import STARTS, packed_limit
from cuda.alignment.smith_waterman.row_launcher import RowLauncher
from msa.alphabet import MASK_BIT
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.local_alignments import LocalAlignment
from msa.profile.pssm import query_profile
from tests.cuda.alignment.reference import best_alignment
from tests.msa.alignments.alignment_builders import local_alignments

simulated = pytest.mark.simulator(or_gpu=True)

# in the simulator, a block must be one group, as shuffles are barriers
THREADS = 4 if config.ENABLE_CUDASIM else 32
PACKED = (Shape(4, 2, THREADS), Shape(4, 6, THREADS))
TRACED = (Shape(4, 8, THREADS),)
SHAPES = {"packed": Shapes(PACKED, PACKED, TRACED), "wide": Shapes((), (), TRACED)}
if (
    not config.ENABLE_CUDASIM
    and cuda.is_available()
    and tuple(cuda.get_current_device().compute_capability) < (9, 0)
):
    SHAPES["packed"] = SHAPES["wide"]


def database(sequences: list[np.ndarray]) -> SequenceArrays:
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    return SequenceArrays(np.concatenate(sequences).astype(np.uint8), ends - lengths, lengths)


def on_device(targets: SequenceArrays) -> DeviceSequences:
    return DeviceSequences(
        cuda.to_device(targets.residues.copy()),
        cuda.to_device(targets.offsets.copy()),
        cuda.to_device(targets.lengths.copy()),
    )


def record(found: LocalAlignment) -> list[int]:
    if not found.score:
        return [0] * 8
    return [
        found.score, found.query_start - 1, found.query_end - 1, found.target_start - 1, found.target_end - 1,
        found.identities, found.columns, len(found.runs),
    ]  # fmt: skip


def runs_of(paths: AlignmentPaths, k: int) -> list[int]:
    return paths.runs[paths.run_offsets[k] : paths.run_offsets[k + 1]].tolist()


def align_to_all(
    profile: np.ndarray,
    query: np.ndarray,
    targets: SequenceArrays,
    costs: tuple[int, int],
    **options: object,
) -> AlignmentPaths:
    """Align one query to all targets."""
    indices = np.arange(len(targets), dtype=np.int64)
    pairs = Pairs(np.zeros(len(targets), np.int32), indices, targets.lengths)
    device = on_device(targets)
    ends = end_positions([profile], device, pairs, *costs, **options)  # type: ignore[arg-type]
    return trace_paths([profile], [query], device, pairs, ends, *costs, **options)  # type: ignore[arg-type]


def check(
    profile: np.ndarray,
    query: np.ndarray,
    sequences: list[np.ndarray],
    costs: tuple[int, int],
    **options: object,
) -> None:
    targets = database(sequences)
    expected = local_alignments(align(profile, query, targets, np.arange(len(targets)), *costs))
    found = align_to_all(profile, query, targets, costs, **options)
    for k, one in enumerate(expected):
        assert found.records[k].tolist() == record(one)
        assert runs_of(found, k) == one.runs.tolist()


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("engine", SHAPES)
@pytest.mark.parametrize("length", [1, 2, 9, 24, 33])
def test_equals_the_cpu_engine(engine: str, length: int) -> None:
    # few letters make ties and many gaps; 33 is one more than a tile
    rng = np.random.default_rng(length)
    query = rng.integers(0, 3, length).astype(np.uint8)
    sequences = [rng.integers(0, 3, n).astype(np.uint8) for n in (0, 1, 7, 14)]
    sequences[2] |= MASK_BIT
    check(query_profile(query, False), query, sequences, (3, 1), shapes=SHAPES[engine], budget=400)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("engine", SHAPES)
def test_first_of_equal_ends_is_returned(engine: str) -> None:
    # D and G score the same against themselves; of the two ends, the later lane has the earlier row
    query, target = np.full(16, 17, np.uint8), np.full(9, 14, np.uint8)
    query[[1, 12]] = target[[6, 2]] = 3, 7
    check(query_profile(query, False), query, [target, target[::-1].copy()], (11, 1), shapes=SHAPES[engine])


@pytest.mark.slow
@simulated
def test_long_gaps_cross_lanes_and_tiles() -> None:
    rng = np.random.default_rng(1)
    query = rng.integers(0, 20, 40).astype(np.uint8)
    sequences = [np.concatenate([query[:8], query[-8:]]), query[12:20], np.empty(0, np.uint8)]
    sequences.append(np.concatenate([query[:5], rng.integers(0, 20, 9).astype(np.uint8), query[5:12]]))
    check(query_profile(query, False), query, sequences, (3, 1), shapes=SHAPES["wide"])


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("step", [127, 1000])
def test_scores_beyond_16_bits(step: int) -> None:
    # with 6 columns a packed score has 13 bits; the other target of the pair must stay correct, too
    length = 8192 // 127 + 2 if step == 127 else 40
    profile = np.full((min(length, 24), 32), -100, np.int16)
    profile[:, 0] = step
    query = np.zeros(len(profile), np.uint8)
    sequences = [np.zeros(n, np.uint8) for n in (12, 11)] + [np.array([1, 0, 1], np.uint8)]
    check(profile, query, sequences, (11, 1), shapes=SHAPES["packed"])


@pytest.mark.slow
@simulated
def test_scores_around_the_packed_limit() -> None:
    limit = packed_limit(12)
    twelve = (Shape(4, 12, THREADS),)
    shapes = Shapes(twelve, twelve, TRACED) if SHAPES["packed"].packed else SHAPES["wide"]
    # beyond 2^12, the column in the low bits would overflow into the other target's score
    for score in (limit, 2**12 + 1):
        length = -(-score // 127)
        profile = np.full((length, 32), -100, np.int16)
        profile[:, 0] = 127
        profile[-1, 0] = score - 127 * (length - 1)
        query = np.zeros(length, np.uint8)
        longer = np.ones(length + 1, np.uint8)
        # the longer target of a pair comes first
        for other in (query[:2], longer):
            check(profile, query, [query, other], (11, 1), shapes=shapes)


@pytest.mark.slow
@simulated
def test_several_queries_at_once() -> None:
    rng = np.random.default_rng(2)
    codes = [rng.integers(0, 4, n).astype(np.uint8) for n in (5, 20, 6)]
    profiles = [query_profile(query, False) for query in codes]
    targets = database([rng.integers(0, 4, n).astype(np.uint8) for n in (6, 10, 13)])
    pairs = Pairs(
        np.array([2, 0, 1, 0, 2], np.int32), np.array([1, 2, 0, 0, 1]), targets.lengths[[1, 2, 0, 0, 1]]
    )
    device = on_device(targets)
    ends = end_positions(profiles, device, pairs, shapes=SHAPES["packed"])
    ends[3] = 0, -1, -1  # not to be traced
    found = trace_paths(profiles, codes, device, pairs, ends, shapes=SHAPES["packed"], budget=300)
    for k in (0, 1, 2, 4):
        query = codes[pairs.query[k]]
        (one,) = local_alignments(align(query_profile(query, False), query, targets, pairs.target[k : k + 1]))
        assert found.records[k].tolist() == record(one) and runs_of(found, k) == one.runs.tolist()
    assert not found.records[3].any() and runs_of(found, 3) == []


def equal_paths(a: AlignmentPaths, b: AlignmentPaths) -> bool:
    names = ("records", "runs", "run_offsets")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize(("engine", "many"), [("packed", False), ("packed", True), ("wide", False)])
def test_queries_and_targets_of_all_lengths_in_any_order(
    engine: str, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        # as if there were thousands of pairs, and those of 6 residues were long
        monkeypatch.setattr(plan, "MANY_PAIRS", 0)
        monkeypatch.setattr(sorting, "LONG_BUCKET", 6)
    rng = np.random.default_rng(4)
    codes = [rng.integers(0, 3, n).astype(np.uint8) for n in (9, 1, 24, 40, 25, 8)]
    profiles = [query_profile(query, False) for query in codes]
    targets = database([rng.integers(0, 3, n).astype(np.uint8) for n in (0, 1, 5, 6, 11)])
    # some pairs occur twice, some not at all, and one query has none
    query, target = rng.choice([0, 1, 2, 3, 5], 18), rng.integers(0, len(targets), 18)
    query[-1], target[-1] = query[0], target[0]
    pairs = Pairs(query.astype(np.int32), target, targets.lengths[target])
    device = on_device(targets)
    ends = end_positions(profiles, device, pairs, 3, 1, shapes=SHAPES[engine], budget=700)
    found = trace_paths(profiles, codes, device, pairs, ends, 3, 1, shapes=SHAPES[engine], budget=2000)
    for k in range(len(pairs)):
        own = codes[query[k]]
        (one,) = local_alignments(
            align(query_profile(own, False), own, targets, pairs.target[k : k + 1], 3, 1)
        )
        expected = record(one)
        assert ends[k].tolist() == ([expected[0], expected[2], expected[4]] if one.score else [0, -1, -1])
        assert found.records[k].tolist() == expected and runs_of(found, k) == one.runs.tolist()


@simulated
def test_narrowest_shape_that_holds_a_query_is_chosen() -> None:
    shapes = (Shape(4, 8, 128), Shape(4, 12, 128), Shape(8, 28, 128))  # 32, 48 and 224 columns
    lengths = np.array([1, 32, 33, 48, 49, 500])
    assert plan.narrowest(shapes, lengths).tolist() == [0, 0, 1, 1, 2, 2]


@simulated
def test_no_pairs() -> None:
    query = np.zeros(3, np.uint8)
    device = on_device(database([query]))
    none = Pairs(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32))
    for codes in ([], [query]):
        profiles = [query_profile(one) for one in codes]
        ends = end_positions(profiles, device, none)
        assert ends.shape == (0, 3)
        found = trace_paths(profiles, codes, device, none, ends)
        assert found.records.shape == (0, 8) and not len(found.runs) and found.run_offsets.tolist() == [0]


@pytest.mark.slow
@simulated
def test_unreachable_residues_are_skipped() -> None:
    rng = np.random.default_rng(5)
    query = rng.integers(0, 20, 7).astype(np.uint8)
    far = rng.integers(0, 20, 30).astype(np.uint8)
    gap = np.concatenate([far, query[:3], np.zeros(2, np.uint8), query[3:]])
    near = np.concatenate([query, far])
    # the more expensive gaps are, the fewer residues can be reached; with cheap gaps, all can
    for costs in ((11, 1), (4, 2), (1, 1)):
        sequences = [np.concatenate([far, query]), gap, near]
        check(query_profile(query, False), query, sequences, costs, shapes=SHAPES["wide"])


class FailingAllocator:
    """An allocator whose n-th call fails."""

    def __init__(self, failing: int) -> None:
        self.left = failing

    def __call__(self, count: int, dtype: np.dtype) -> object:
        self.left -= 1
        if not self.left:
            raise MemoryError
        # more than requested, as a pool may return
        return cuda.device_array(count + 3, dtype)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("engine", SHAPES)
def test_failed_allocation_can_be_retried(engine: str) -> None:
    query = np.array([3, 4], np.uint8)
    profile = query_profile(query, False)
    # the second profile does not fit in 16-bit arithmetic
    profiles, codes = [profile, profile * np.int16(100)], [query, query]
    targets = database([query, query[:1]])
    pairs = Pairs(np.array([0, 1], np.int32), np.array([1, 0]), np.array([1, 2], np.int32))
    device = on_device(targets)
    options = {"shapes": SHAPES[engine]}
    ends = end_positions(profiles, device, pairs, **options)
    paths = trace_paths(profiles, codes, device, pairs, ends, **options)
    for work in (
        lambda allocate: end_positions(profiles, device, pairs, allocate=allocate, **options),
        lambda allocate: trace_paths(profiles, codes, device, pairs, ends, allocate=allocate, **options),
    ):
        failing, found = 1, None
        while found is None:
            try:
                found = work(FailingAllocator(failing))
            except MemoryError:
                failing += 1
        assert failing > 8
        if isinstance(found, AlignmentPaths):
            assert equal_paths(found, paths)
        else:
            assert np.array_equal(found, ends)


@pytest.mark.slow
@simulated
def test_pairs_are_sorted_by_query_and_length() -> None:
    rng = np.random.default_rng(6)
    lengths = rng.integers(1, 100, 40).astype(np.int32)
    targets = database([np.zeros(n, np.uint8) for n in lengths.tolist()])
    query = np.array([3, 4, 5], np.uint8)
    profiles = [query_profile(query, False)] * 3
    shuffled = rng.permutation(40)
    pairs = Pairs((shuffled % 3).astype(np.int32), shuffled, lengths[shuffled])
    rows = RowLauncher(profiles, on_device(targets), 11, 1, SHAPES["wide"], 0, None, cuda.device_array)
    starts, words = rows.empty(40 * STARTS, np.int64), rows.empty(1)
    prepared = rows.prepare_wide("wide", pairs, rows.allocate_ends(40), starts, words, words)
    order = np.asarray(prepared.arguments[0][4].copy_to_host())
    assert sorted(order.tolist()) == list(range(40))
    expected = np.lexsort((-pairs.length, pairs.query))
    assert np.array_equal(pairs.query[order], pairs.query[expected])
    assert np.array_equal(pairs.length[order], pairs.length[expected])


def test_reference_equals_the_cpu_engine() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        query = rng.integers(0, 4, int(rng.integers(1, 25))).astype(np.uint8)
        target = rng.integers(0, 4, int(rng.integers(1, 25))).astype(np.uint8)
        profile = query_profile(query, False)
        (one,) = local_alignments(align(profile, query, database([target]), np.arange(1), 4, 1))
        found, runs = best_alignment(profile, query, target, 4, 1)
        assert found == record(one) and runs == one.runs.tolist()


@simulated
@pytest.mark.parametrize("costs", [(0, 0), (1, 2), (5, 0)])
def test_invalid_gap_costs_are_refused(costs: tuple[int, int]) -> None:
    query = np.zeros(3, np.uint8)
    targets = database([query])
    with pytest.raises(ValueError, match="gap open"):
        align_to_all(query_profile(query), query, targets, costs)
