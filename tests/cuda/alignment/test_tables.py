"""Tables of many profiles, built and uploaded together, equal those that are built one by one."""

from typing import Any

import numpy as np
import pytest

from cuda.alignment import device as gpu
from cuda.alignment.gapless import runtime
from cuda.alignment.gapless.layout import BYTE, HALF, MAX_SCORE, SHORT, Arithmetic, LaneLayout
from cuda.alignment.gapless.runtime import TableUploader, UploadedArray, UploadedTable
from cuda.alignment.gapless.tables import TableSource, profile_limits, write_tables
from tests.cuda.alignment.reference import profile_table

SHAPES = [(1, 8), (1, 128), (2, 72), (4, 8), (4, 12), (4, 64), (4, 128), (8, 16), (8, 72), (16, 32), (32, 40)]


def random_profile(rng: np.random.Generator, length: int, highest: int) -> np.ndarray:
    return rng.integers(-20, highest + 1, (length, 32)).astype(np.int16)


def random_sources(rng: np.random.Generator, arithmetic: Arithmetic) -> list[TableSource]:
    sources = []
    for lanes, columns in SHAPES:
        if columns % (4 * arithmetic.entry_bytes):
            continue
        layout = LaneLayout(lanes, columns, arithmetic.entry_bytes)
        for length in (1, layout.tile // 2 + 1, layout.tile):
            highest = MAX_SCORE if arithmetic is BYTE else 2048
            sources.append(TableSource(layout, arithmetic, random_profile(rng, length, highest)))
    return sources


def expected_table(source: TableSource) -> np.ndarray:
    return profile_table(source.layout, source.profile, source.arithmetic)


@pytest.mark.parametrize("arithmetic", [BYTE, HALF, SHORT], ids=lambda arithmetic: arithmetic.name)
def test_tables_of_many_profiles_equal_single_ones(arithmetic: Arithmetic) -> None:
    sources = random_sources(np.random.default_rng(1), arithmetic)
    for several in sources, sources[:1]:
        tables = np.full(sum(source.words for source in several), -1, np.int32)
        write_tables(several, tables)
        assert tables.tolist() == np.concatenate([expected_table(source) for source in several]).tolist()


def test_limits_of_many_profiles() -> None:
    rng = np.random.default_rng(2)
    profiles = [random_profile(rng, length, highest) for length, highest in ((1, 5), (7, -3), (300, 200))]
    profiles[0][0, 26:] = 900, -900, 0, 0, 0, 0
    found = profile_limits(profiles)
    for profile, limits in zip(profiles, found, strict=True):
        assert limits == profile_limits([profile])[0]
        assert (limits.lowest, limits.lowest_entry) == (profile[:, :26].min(), profile.min())
        assert limits.highest_entry == profile.max() and limits.largest_magnitude == np.abs(profile).max()
        assert limits.best_total == np.maximum(profile.max(axis=1), 0).sum(dtype=np.int64)
    assert [limits.slack for limits in found] == [
        min(max(-int(profile[:, :26].min()), 0), 4) for profile in profiles
    ]


@pytest.mark.simulator(or_gpu=True)
def test_uploads_do_not_overwrite_earlier_ones() -> None:
    rng, stream = np.random.default_rng(3), gpu.new_stream()
    uploader = TableUploader(gpu.device_array)
    batches = []
    for count in (1, 3, 2, 5, 1):
        sources = [*random_sources(rng, BYTE)[:count], *random_sources(rng, HALF)[:count]]
        batches.append([UploadedTable([sources[k]]) for k in rng.permutation(len(sources))])
        batches[-1].append(UploadedTable(random_sources(rng, SHORT)[:count]))
    arrays = [
        [UploadedArray(rng.integers(-9, 9, (count, 7)).astype(np.int32)) for count in (turn, 1)]
        for turn in range(len(batches))
    ]
    events = [uploader.upload(*tables_and_arrays) for tables_and_arrays in zip(batches, arrays, strict=True)]
    # not uploaded: built, or copied, on first use
    batches.append([UploadedTable(random_sources(rng, HALF)[:count]) for count in (1, 2)])
    arrays.append([UploadedArray(np.ones((2, 3), np.int32))])
    for event in events:
        event.wait(stream)
    for table in (table for batch in batches for table in batch):
        expected = np.concatenate([expected_table(source) for source in table.sources])
        assert table.copy_for(stream).copy_to_host().tolist() == expected.tolist()
    for each in (each for of_batch in arrays for each in of_batch):
        assert each.copy_for(stream).copy_to_host().tolist() == each.array.tolist()


@pytest.mark.simulator
def test_staging_memory_is_reused_only_after_its_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[RecordingEvent] = []
    monkeypatch.setattr(runtime.gpu, "event", lambda: RecordingEvent(events))
    rng, uploader = np.random.default_rng(5), TableUploader(gpu.device_array)
    for count in range(1, 5):
        uploader.upload([UploadedTable(random_sources(rng, HALF)[:1])])
        assert [event.waited_for for event in events] == [k < count - 2 for k in range(count)]


class RecordingEvent:
    """An event that records whether it was waited for."""

    def __init__(self, events: list["RecordingEvent"]) -> None:
        self.waited_for = False
        events.append(self)

    def record(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        self.waited_for = True
