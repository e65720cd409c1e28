"""Tests of `--dry-run`: the plan for each target, and estimates of time and memory."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from foldcli.cli import cli
from foldcli.errors import SomeTargetsFailed
from foldcli.families.alphafold2_networks import (
    SECONDS_PER_PASS,
    parameter_bytes,
    peak_bytes,
    seconds_per_pass,
)
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.pipeline.runs.dry_run import (
    DONE,
    RESUMED,
    TO_DO,
    Estimate,
    PlanHeading,
    PlannedTarget,
    plan_targets,
    print_plan,
    totals,
)
from model.alphafold2.modules.config import model_config
from tests.networks import tiny_network

H200 = "NVIDIA H200"
ALL = Shard()
CONFIG = model_config("model_3_ptm")
MEASURED = AlphaFold2Settings(precision="bf16", kernels="fused")


def inspect(name: str, residues: int) -> tuple[int, str]:
    if residues < 2:
        # errors about queries begin with their names
        raise ValueError(f"{name}: too short")
    return residues, {"a": DONE, "c": RESUMED}.get(name, TO_DO)


def test_plan_states_the_action_for_each_target(tmp_path: Path) -> None:
    targets = [("d", 40), ("c", 30), ("b", 20), ("a", 10), ("e", 1)]
    failures = Failures(tmp_path, Shard())

    def plan(shard: Shard = ALL) -> list[tuple[str, str]]:
        planned = plan_targets(targets, inspect, shard, failures)
        return [(target.name, target.action) for target in planned]

    actions = [DONE, TO_DO, RESUMED, TO_DO, "invalid: too short"]
    assert plan() == list(zip("abcde", actions, strict=True))
    assert [name for name, _ in failures.failed] == ["e"]
    # the plan has the targets that the run itself would select
    targets_of_shard = [name for name, action in plan(Shard(2, 2)) if not action.startswith("in shard")]
    assert targets_of_shard == [name for name, _ in Shard(2, 2).select(targets)] == ["b", "d"]
    assert plan(Shard(2, 2))[0] == ("a", "in shard 1/2")
    assert not (tmp_path / "failures.jsonl").exists()


def test_totals_are_the_sum_of_seconds_and_the_largest_memory() -> None:
    to_do = [
        PlannedTarget("a", 9, TO_DO, Estimate(2**30, 60.0)),
        PlannedTarget("b", 9, RESUMED, Estimate(2**31, 90.0)),
    ]
    others = [
        PlannedTarget("c", 9, DONE),
        PlannedTarget("d", None, "in shard 1/2"),
        PlannedTarget("e", None, "invalid: no"),
    ]
    first, *_ = totals([*to_do, *others])
    assert first == (
        "2 to do, 1 already done, 1 in other shards, 1 invalid; network time 2 min 30 s, peak memory 2.0 GiB"
    )
    assert "network time unknown" in totals([*to_do, PlannedTarget("x", 9, TO_DO, Estimate(None, None))])[0]
    assert totals([]) == ["no targets"]


def test_json_has_the_targets_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failures = Failures(tmp_path, ALL)
    targets = [("d", 40), ("c", 30), ("a", 10), ("e", 1)]
    planned = plan_targets(targets, inspect, ALL, failures, lambda residues, target: Estimate(2**30, 60.0))
    failures.record("unreadable.fasta", ValueError("unreadable.fasta: not FASTA"))
    capsys.readouterr()
    with pytest.raises(SomeTargetsFailed):
        print_plan(planned, [PlanHeading("network: CPU", "network", {"device": "CPU"})], failures, True)
    content = json.loads(capsys.readouterr().out)
    assert content["network"] == {"device": "CPU"}
    assert content["unreadable"] == ["unreadable.fasta: not FASTA"]
    states = [(target["target"], target["state"], target["action"]) for target in content["targets"]]
    assert states == [
        ("a", "done", DONE),
        ("c", "to_do", RESUMED),
        ("d", "to_do", TO_DO),
        ("e", "invalid", "invalid: too short"),
    ]
    done, resumed, *_ = content["targets"]
    assert (done["residues"], done["memory_bytes"], done["seconds"]) == (10, None, None)
    assert (resumed["memory_bytes"], resumed["seconds"]) == (2**30, 60.0)


def test_json_plan_of_cache_features(tmp_path: Path) -> None:
    (tmp_path / "a.a3m").write_text(">a\nMKVLGA\n>b\nMK-LGA\n")
    arguments = ["cache-features", str(tmp_path / "a.a3m"), "--cache", str(tmp_path / "cache"), "--json"]
    result = CliRunner().invoke(cli, [*arguments, "--dry-run"])
    content = json.loads(result.stdout)
    assert content["cache"] == {"path": str(tmp_path / "cache")}
    assert [(target["target"], target["state"]) for target in content["targets"]] == [("a", "to_do")]
    assert not (tmp_path / "cache").exists()
    # without --dry-run there is no JSON to print
    assert CliRunner().invoke(cli, arguments).exit_code == 2


@pytest.mark.parametrize(("residues", "seconds"), SECONDS_PER_PASS[H200])
def test_measured_lengths_get_their_measured_seconds(residues: int, seconds: float) -> None:
    assert seconds_per_pass(H200, CONFIG, MEASURED, residues) == pytest.approx(seconds)


def test_seconds_are_interpolated_between_measurements_and_unknown_beyond_them() -> None:
    seconds = [seconds_per_pass(H200, CONFIG, MEASURED, residues) for residues in range(256, 4097, 64)]
    assert None not in seconds and seconds == sorted(set(seconds), key=lambda value: value or 0.0)
    assert seconds_per_pass(H200, CONFIG, MEASURED, 20) == seconds_per_pass(H200, CONFIG, MEASURED, 256)
    assert seconds_per_pass(H200, CONFIG, MEASURED, 4097) is None
    assert seconds_per_pass("NVIDIA A100", CONFIG, MEASURED, 256) is None
    assert seconds_per_pass(H200, tiny_network(), MEASURED, 256) is None
    assert seconds_per_pass(H200, CONFIG, AlphaFold2Settings(precision="fp32", kernels="fused"), 256) is None
    deeper = AlphaFold2Settings(precision="bf16", kernels="fused", max_extra_seq=6000)
    assert seconds_per_pass(H200, CONFIG, deeper, 256) is None


@pytest.mark.parametrize(("residues", "measured"), [(256, 1.6), (512, 2.4), (2048, 6.4), (4096, 22.0)])
def test_estimated_memory_is_close_to_measured_memory(residues: int, measured: float) -> None:
    """Compare with GiB measured on an H200 and, for long proteins, on an H100 (docs/performance.md)."""
    estimated = peak_bytes(CONFIG, MEASURED, residues, 139 * 2**30) + parameter_bytes(CONFIG, MEASURED)
    assert 0.9 * measured <= estimated / 2**30 <= 1.55 * measured


def test_two_gpus_need_little_more_than_half_of_the_memory_each() -> None:
    one, two = (peak_bytes(CONFIG, MEASURED, 4096, 139 * 2**30, ranks) for ranks in (1, 2))
    assert 0.5 * one < two < 0.75 * one


def test_estimates_count_the_seeds_of_each_job(tmp_path: Path) -> None:
    def job(name: str, seeds: list[int]) -> dict[str, object]:
        chain = {"protein": {"id": "A", "sequence": "MTYKLILNGKTL"}}
        names = {"name": name, "dialect": "alphafold3", "version": 1}
        return names | {"modelSeeds": seeds, "sequences": [chain]}

    (tmp_path / "db.fasta").write_text(">1\nMTYKLILNGKTL\n")
    (tmp_path / "jobs.json").write_text(json.dumps([job("one", [1]), job("three", [1, 2, 3])]))
    inputs = [str(tmp_path / "jobs.json"), "--db", str(tmp_path / "db.fasta"), "-o", str(tmp_path / "out")]
    options = ["--params", "compact", "--device", "cpu", "--dry-run", "--json"]
    result = CliRunner().invoke(cli, ["fold", *inputs, *options], catch_exceptions=False)
    seconds = {target["target"]: target["seconds"] for target in json.loads(result.stdout)["targets"]}
    assert seconds["three"] == pytest.approx(3 * seconds["one"])
