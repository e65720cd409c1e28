"""Launch tables: their selection for a GPU, and tuning, which runs in numba's simulator."""

import json
from pathlib import Path

import pytest

from cuda.alignment.gapless.launch_table import (
    choose_launch,
    launch_table,
    local_table_path,
    max_query_length,
)
from cuda.alignment.gapless.runtime import Device
from msa.gpu import gapless_tuning
from msa.gpu.device.devices import find_gpu
from msa.gpu.gapless_tuning import (
    _LANE_COUNTS,
    GaplessTuner,
    candidate_launches,
    table_json,
)

pytestmark = pytest.mark.slow


def test_local_launch_table_is_preferred(tmp_path: Path) -> None:
    row = {"longest_query": 40, "lanes": 4, "columns": 16, "threads": 64, "blocks": 1}
    path = local_table_path("NVIDIA H200", tmp_path)
    path.parent.mkdir(parents=True)
    # earlier versions also wrote a table for exact scores
    path.write_text(json.dumps({"exact": [row], "bounds": [row | {"columns": 24}]}))
    launches = launch_table("NVIDIA H200", tmp_path).values()
    assert [launch.layout.columns for launch in launches] == [24]
    launch = choose_launch(40, "NVIDIA H200", 2**18, tmp_path)
    assert launch is not None and (launch.layout.columns, launch.threads) == (24, 64)
    assert max_query_length("NVIDIA H200", 2**18, tmp_path) == 40
    # the table is not used for another GPU or from another folder
    assert len(launch_table("NVIDIA H100", tmp_path)) > 1
    assert len(launch_table("NVIDIA H200", tmp_path / "other")) > 1


def test_candidate_launches_hold_the_query() -> None:
    device = Device(0, "a GPU", (9, 0), 132, 227 * 2**10)
    for length in (*range(16, 513, 16), *range(544, 1025, 32), *range(1088, 2049, 64)):
        launches = list(candidate_launches(length, device))
        assert launches and len(launches) == len(set(launches))
        for launch in launches:
            assert launch.layout.tile >= length
            assert launch.blocks * launch.layout.table_bytes <= device.shared_bytes


@pytest.mark.simulator
def test_tuned_table_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gapless_tuning, "_BLOCK_SHAPES", ((128, 4), (256, 2)))
    device = Device.current().name
    reported: list[str] = []
    old = launch_table(device)
    tuner = GaplessTuner(find_gpu(), tmp_path)
    table = tuner.tune([20], reported.append, max_targets=1)
    assert len(reported) == 2 * _LANE_COUNTS
    path = local_table_path(device, tmp_path)
    path.parent.mkdir()
    path.write_text(table_json(table))
    launch_table.cache_clear()
    new = launch_table(device, tmp_path)
    assert list(new) == sorted({20, *old}) and new[20].layout.tile >= 20
    assert {longest: new[longest] for longest in old} == old


@pytest.mark.simulator
def test_speed_is_measured(tmp_path: Path) -> None:
    # times are negative in the simulator
    assert GaplessTuner(find_gpu(), tmp_path).speed(12, residues=24)
