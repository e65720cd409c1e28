"""Launch tables: which one a GPU gets, and how one is made; the making under numba's simulator."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"

simulated = pytest.mark.skipif(
    not SIMULATED, reason="runs in the process that test_under_the_simulator starts"
)


@pytest.mark.skipif(SIMULATED, reason="is in the simulator already")
def test_under_the_simulator(run_in_simulator: Callable[[str], None]) -> None:
    run_in_simulator(__file__)


def test_this_machines_own_table_comes_first(tmp_path: Path) -> None:
    from cuda.alignment.gapless.launch_table import choose_launch, launch_table, own_table, widest

    row = {"longest_query": 40, "lanes": 4, "columns": 16, "threads": 64, "blocks": 1}
    path = own_table("NVIDIA H200", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"exact": [row], "bounds": [row | {"columns": 24}]}))
    for kernel, columns in (("exact", 16), ("bounds", 24)):
        assert [
            launch.layout.columns for launch in launch_table("NVIDIA H200", kernel, tmp_path).values()
        ] == [columns]
        launch = choose_launch(40, "NVIDIA H200", 2**18, kernel, tmp_path)
        assert launch is not None and (launch.layout.columns, launch.threads) == (columns, 64)
        assert widest("NVIDIA H200", 2**18, kernel, tmp_path) == 40
        # another GPU's, and another folder's, is not its own
        assert len(launch_table("NVIDIA H100", kernel, tmp_path)) > 1
        assert len(launch_table("NVIDIA H200", kernel, tmp_path / "other")) > 1


@simulated
def test_a_table_is_made_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.alignment.gapless.device import Device
    from cuda.alignment.gapless.launch_table import launch_table, own_table
    from cuda.alignment.gapless.speed import as_json, tuned_table

    monkeypatch.setattr("cuda.alignment.gapless.tune._SHAPES", ((128, 4), (256, 2)))
    device, said = Device.current().name, []
    before = {kernel: launch_table(device, kernel) for kernel in ("bounds", "exact")}
    table = tuned_table([20], tmp_path, said.append, targets=1)
    assert said.count("bounds:") == 1 and len(said) == 6
    path = own_table(device, tmp_path)
    path.parent.mkdir()
    path.write_text(as_json(table))
    launch_table.cache_clear()
    for kernel, old in before.items():
        new = launch_table(device, kernel, tmp_path)
        assert list(new) == sorted({20, *old}) and new[20].layout.tile >= 20
        assert {longest: new[longest] for longest in old} == old


@simulated
def test_speed(tmp_path: Path) -> None:
    from cuda.alignment.gapless.speed import speed

    found = speed(12, tmp_path, residues=24)
    # the simulator's clock runs backwards
    assert found.length == 12 and found.bounds and found.exact
