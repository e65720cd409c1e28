"""Whole runs of `fold` with a family that foldcli does not have, added by a line in the registry."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foldcli.cli import cli
from foldcli.errors import SomeTargetsFailed
from foldcli.families import registry
from tests.foldcli.families import constant
from tests.foldcli.families.constant import Constant

FIRST, SECOND = "MTYKLILNGKTLKGETTTEAVDAATAEK", "MQIFVKTLTGKTITLEVEPSDTIENVKA"
TAGS = [f"constant_seed_000_sample_{index}" for index in (2, 1, 0)]

Fold = Callable[..., Result]


@pytest.fixture
def fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fold:
    """Return a function that runs `foldcli fold` with the family on two targets, one of them refused."""
    monkeypatch.setattr(registry, "FAMILIES", [Constant(), *registry.FAMILIES])
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constant, "started", [])
    (tmp_path / "db.fasta").write_text(f">a\n{FIRST[:-1]}R\n>b\n{SECOND[:-1]}V\n")
    (tmp_path / "targets.txt").write_text(f"pair {FIRST},{SECOND} 7\nalone {FIRST} 1\nempty {SECOND} 0\n")

    def run(*options: str) -> Result:
        return CliRunner().invoke(
            cli,
            [
                "fold", str(tmp_path / "targets.txt"), "--db", str(tmp_path / "db.fasta"), "-o",
                str(tmp_path / "out"), "--params", "constant", "--device", "cpu", "--threads", "1",
                "--no-plots", *options,
            ],
        )  # fmt: skip

    return run


def ranking(folder: Path, name: str) -> list[str]:
    """Return the tags of a target's models, best first, after checking that their files exist."""
    target = folder / "out" / name
    models = json.loads((target / f"{name}.done.json").read_text())["ranking"]
    for model in models:
        stem = f"rank_{model['rank']:03d}_{model['tag']}"
        assert (target / f"{name}_unrelaxed_{stem}.cif").is_file()
        assert json.loads((target / f"{name}_scores_{stem}.json").read_text())["plddt"]
        assert not (target / f"{name}_unrelaxed_{stem}.pdb").exists()
    return [model["tag"] for model in models]


def test_run_of_another_family_is_planned_made_resumed_and_summarized(fold: Fold, tmp_path: Path) -> None:
    plan = fold("--dry-run")
    assert isinstance(plan.exception, SomeTargetsFailed) and "network: constant, 10 steps" in plan.stdout
    assert re.search(r"^target +tokens +memory", plan.stdout, re.MULTILINE)
    assert re.search(r"pair +63 +0.1 GiB +1.0 s  to do", plan.stdout), plan.stdout
    assert re.search(r"empty .*invalid: no atoms", plan.stdout)

    result = fold()
    assert isinstance(result.exception, SomeTargetsFailed) and "empty: no atoms" in result.stderr, (
        result.stderr
    )
    assert "pair: 63 tokens" in result.stderr
    # one job for all samples of a seed, ranked by the network's own score
    assert sorted(constant.started) == ["alone, 0", "pair, 0"]
    assert ranking(tmp_path, "pair") == ranking(tmp_path, "alone") == TAGS
    done = json.loads((tmp_path / "out/pair/pair.done.json").read_text())
    assert [stage["stage"] for stage in done["stages"]] == ["search", "features", "predict", "report"]
    assert done["settings"].keys() == {"atoms", "chains", "predict"}
    assert [model["ranking_score"] for model in done["ranking"]] == [0.7, 0.6, 0.5]
    assert (tmp_path / "out/pair/pair.html").is_file()
    lines = [line.split("\t") for line in (tmp_path / "out/summary.tsv").read_text().splitlines()]
    assert [(line[0], line[2]) for line in lines[1:]] == [
        (name, tag) for name in ("alone", "pair") for tag in TAGS
    ]

    # finished targets are kept, and further seeds are added to them
    constant.started.clear()
    assert "pair: already done" in fold().stderr and not constant.started
    fold("--num-seeds", "2")
    assert sorted(constant.started) == ["alone, 1", "pair, 1"]
    assert len(ranking(tmp_path, "pair")) == 6
    # the samples of a seed are made again together if one is missing
    constant.started.clear()
    next((tmp_path / "out/alone").glob("*sample_1.cif")).unlink()
    fold("--num-seeds", "2")
    assert len(constant.started) == 1 and len(ranking(tmp_path, "alone")) == 6
    assert "made with other settings (predict.steps 10, now 5)" in fold("--num-recycle", "5").stderr


def test_stop_at_score_counts_the_best_sample_of_a_job(fold: Fold, tmp_path: Path) -> None:
    result = fold("--num-seeds", "3", "--stop-at-score", "85")
    assert "pair: pLDDT is above 85 (--stop-at-score), 6 more models not run" in result.stderr
    assert ranking(tmp_path, "pair") == TAGS
    assert sorted(constant.started) == ["alone, 0", "pair, 0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-relax", "1"], "--num-relax: --params constant has nothing to relax."),
        (["--gpus-per-target", "2"], "--gpus-per-target: this network predicts each target on one device."),
    ],
)
def test_options_that_a_family_lacks_are_refused(fold: Fold, options: list[str], message: str) -> None:
    result = fold(*options)
    assert result.exit_code == 2 and message in result.stderr
