"""Plans of `--dry-run`: what would become of each target, and estimates where something was measured."""

import json
from functools import partial
from pathlib import Path

import pytest

from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import TargetFiles
from foldcli.pipeline.dry_run import DONE, RESUMED, TO_DO, Planned, plan, state_of
from foldcli.pipeline.dry_run import _totals as totals
from foldcli.pipeline.estimates import SECONDS_A_PASS, Estimate, parameter_bytes, peak_on_gpu, seconds_a_pass
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.output_location import Place
from foldcli.pipeline.predictor import PredictSettings
from model.config import model_config

H200 = "NVIDIA H200"
WHOLE = Shard()
CONFIG = model_config("model_3_ptm")
MEASURED = PredictSettings(precision="bf16", kernels="fused")


def look(item: int) -> tuple[int, str | None]:
    if item < 2:
        raise ValueError("too short")
    return item, f"key of {item}"


def finish(out: Path, name: str, key: str) -> None:
    path = TargetFiles(name, out).path("done")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"fingerprint": key}))


def test_each_target_has_what_becomes_of_it(tmp_path: Path) -> None:
    finish(tmp_path, "a", "key of 10")
    finish(tmp_path, "b", "key of something else")
    (tmp_path / "c/.work").mkdir(parents=True)
    named = [("d", 40), ("c", 30), ("b", 20), ("a", 10), ("e", 1)]
    failures = Failures(tmp_path, Shard())

    def planned(shard: Shard = WHOLE, overwrite: bool = False) -> list[tuple[str, str]]:
        state = partial(state_of, Place(tmp_path, "default", shard, overwrite))
        return [(each.name, each.what) for each in plan(named, look, shard, state, failures)]

    whats = [DONE, TO_DO, RESUMED, TO_DO, "invalid: too short"]
    assert planned() == list(zip("abcde", whats, strict=True))
    assert [name for name, _ in failures.failed] == ["e"]
    assert planned(overwrite=True)[:3] == [("a", TO_DO), ("b", TO_DO), ("c", TO_DO)]
    # the same targets as the run itself would take, and nothing is looked at of the others
    mine = [name for name, what in planned(Shard(2, 2)) if not what.startswith("in shard")]
    assert mine == [name for name, _ in Shard(2, 2).select(named)] == ["b", "d"]
    assert planned(Shard(2, 2))[0] == ("a", "in shard 1/2")
    assert not (tmp_path / "failures.jsonl").exists()


def test_totals_add_seconds_and_take_the_most_memory() -> None:
    some = [Planned("a", 9, TO_DO, Estimate(2**30, 60.0)), Planned("b", 9, RESUMED, Estimate(2**31, 90.0))]
    others = [Planned("c", 9, DONE), Planned("d", None, "in shard 1/2"), Planned("e", None, "invalid: no")]
    first, *_ = totals([*some, *others])
    assert first == (
        "2 to do, 1 already done, 1 in other shards, 1 invalid; time of the network 2 min, "
        "memory at the highest 2.0 GiB"
    )
    assert "time of the network unknown" in totals([*some, Planned("x", 9, TO_DO, Estimate(None, None))])[0]
    assert totals([]) == ["no targets"]


@pytest.mark.parametrize(("residues", "seconds"), SECONDS_A_PASS[H200])
def test_measured_lengths_have_their_measured_seconds(residues: int, seconds: float) -> None:
    assert seconds_a_pass(H200, CONFIG, MEASURED, residues) == pytest.approx(seconds)


def test_seconds_grow_between_measurements_and_are_not_made_up_beyond_them() -> None:
    found = [seconds_a_pass(H200, CONFIG, MEASURED, residues) for residues in range(256, 4097, 64)]
    assert None not in found and found == sorted(set(found), key=lambda seconds: seconds or 0.0)
    assert seconds_a_pass(H200, CONFIG, MEASURED, 20) == seconds_a_pass(H200, CONFIG, MEASURED, 256)
    assert seconds_a_pass(H200, CONFIG, MEASURED, 4097) is None
    assert seconds_a_pass("NVIDIA A100", CONFIG, MEASURED, 256) is None
    assert seconds_a_pass(H200, model_config("demo"), MEASURED, 256) is None
    assert seconds_a_pass(H200, CONFIG, PredictSettings(precision="fp32", kernels="fused"), 256) is None
    deeper = PredictSettings(precision="bf16", kernels="fused", max_extra_seq=6000)
    assert seconds_a_pass(H200, CONFIG, deeper, 256) is None


@pytest.mark.parametrize(
    ("residues", "measured"), [(256, 1.6), (512, 2.4), (1024, 3.0), (2048, 8.5), (2560, 12.8)]
)
def test_estimated_memory_is_near_what_was_measured(residues: int, measured: float) -> None:
    """GiB on an H200 as docs/performance.md has them, 1,024 residues without other lengths' graphs."""
    estimated = peak_on_gpu(CONFIG, MEASURED, residues, 139 * 2**30) + parameter_bytes(CONFIG, MEASURED)
    assert 0.9 * measured <= estimated / 2**30 <= 1.55 * measured
