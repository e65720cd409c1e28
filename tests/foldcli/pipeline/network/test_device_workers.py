"""Runs on several workers: results, targets that end a worker, and workers that are given up."""

import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Semaphore
from typing import Any, ClassVar

import numpy as np
import pytest

from foldcli.errors import SomeTargetsFailed
from foldcli.families.settings import AlphaFold2Settings, Job, NetworkOptions
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import TargetFiles
from foldcli.params.parameters import TEMPLATE_COPY, FamilyName, find_parameters
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.device_workers import DeviceWorker, JobInterrupted, WorkerSettings
from foldcli.pipeline.network.job_runners import LocalRunner
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.network.processes import predicts_in_workers, unused_devices
from foldcli.pipeline.network.start import Startup
from foldcli.pipeline.prepare.sampling_process import SamplingProcesses
from foldcli.pipeline.runs import several_devices
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings
from foldcli.progress import Progress
from foldcli.report import ReportSettings
from model.parallel.rank_assignment import RankAssignment
from msa.base.errors import MissingError
from tests.foldcli.pipeline.network import tiny_worker
from tests.foldcli.pipeline.network.tiny_worker import TinyPredictor, TinyWorkerSettings, tiny_workers
from tests.networks import tiny_parameters

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = NetworkMemory("cpu")
SETTINGS = AlphaFold2Settings(num_recycles=1, max_seq=8, max_extra_seq=6)


def write_targets(folder: Path, names: list[str]) -> list[tuple[str, AlignmentTarget]]:
    """Write an alignment for each target, of different lengths."""
    folder.mkdir()
    targets = []
    for number, name in enumerate(names):
        query = ("MQIFVKTLTGKTITLEVEPSD" * 3)[: 60 if name.startswith("large") else 8 + number]
        (folder / f"{name}.a3m").write_text(
            f">{name}\n{query}\n>other\n{query[:5]}{'-' * (len(query) - 5)}\n"
        )
        targets.append((name, AlignmentTarget(name, (str(folder / f"{name}.a3m"),))))
    return targets


def run(
    folder: Path,
    targets: list[tuple[str, AlignmentTarget]],
    workers: int,
    models: tuple[int, ...] = (3, 4),
    memory: NetworkMemory = CPU,
    per_target: int = 1,
    sampling: int = 0,
) -> Failures:
    """Run all targets into OUT, in several workers or here; sample in several processes or here."""
    sources = find_parameters(tiny_parameters(), models, "auto")
    predictor = TinyPredictor(sources, SETTINGS, memory)
    parameters = [{"label": s.label, "network": s.config_name, "content": "tiny"} for s in sources]
    output = OutputSettings(folder, "default", Shard(), False, ReportSettings(False, False))
    features = FeatureSettings(folder.parent / "cache")
    identities = TargetIdentities(sources, parameters, SETTINGS)
    devices = tiny_workers(predictor, workers)
    settings = RunSettings(
        output, features, predictor, identities, workers=devices, devices_per_target=per_target,
        startup=Startup(sampling=SamplingProcesses(sampling) if sampling else None),
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    failures = Failures(folder, Shard())
    try:
        run_targets(targets, settings, failures)
    except SomeTargetsFailed:
        assert failures.failed
    return failures


def structures(folder: Path) -> dict[str, bytes]:
    """Return the files of all models, and the ranking."""
    return {path.name: path.read_bytes() for path in folder.rglob("*_rank_*")}


def finished(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if TargetFiles(name, folder).path("done").is_file()]


@pytest.mark.slow
def test_workers_predict_what_one_process_predicts_and_lose_only_their_target(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone, together = ["a", "b", "c"], ["large", "scarce"]
    # the longest come first: no process has to be started again for the last two
    names = ["killed", "cuda", "a", "b", "bad", "c", "large_lost", *together]
    targets = write_targets(tmp_path / "in", names)
    expected = [target for target in targets if target[0] in alone + together]
    assert not run(tmp_path / "one", expected, workers=0).failed
    with caplog.at_level(logging.INFO, "foldcli"):
        failures = run(tmp_path / "two", targets, workers=2, sampling=2)
    for name in alone:
        assert structures(tmp_path / "two" / name) == structures(tmp_path / "one" / name)
        assert len(structures(tmp_path / "two" / name)) == 2 * 3
    for name in together:
        assert_similar(tmp_path / "two" / name, tmp_path / "one" / name)
        facts = json.loads(TargetFiles(name, tmp_path / "two").path("done").read_text())["facts"]
        assert facts["gpus_per_target"] == 2
    errors = {name: str(error) for name, error in failures.failed}
    assert sorted(errors) == ["bad", "cuda", "killed", "large_lost"]
    assert errors["bad"] == "for this target"
    assert "killed by SIGKILL" in errors["killed"] and "worker of cpu:" in errors["killed"]
    assert "lost its GPU: CUDA error" in errors["cuda"]
    assert errors["large_lost"] == "the worker of cpu:1 has ended: its process was killed by SIGKILL"
    assert caplog.text.count("it is started again") + caplog.text.count("is not started again") == 3
    assert caplog.text.count("all predict it together at the end") == 3
    assert "scarce: does not fit one device (2.00 GiB more)" in caplog.text
    assert "large: does not fit one device (60 residues: chunks of 4 Mi elements" in caplog.text
    entries = (tmp_path / "two/failures.jsonl").read_text().splitlines()
    assert len(entries) == 4 and all(json.loads(entry)["exit_code"] == 1 for entry in entries)
    done = json.loads(TargetFiles("a", tmp_path / "two").path("done").read_text())
    assert [stage["stage"] for stage in done["stages"]] == ["features", "predict", "report"]


@pytest.mark.slow
def test_processes_sample_what_the_predictor_samples(tmp_path: Path) -> None:
    targets = write_targets(tmp_path / "in", ["a", "b"])
    for sampling in (0, 1):
        assert not run(tmp_path / str(sampling), targets, workers=0, sampling=sampling).failed
    assert structures(tmp_path / "1") == structures(tmp_path / "0")
    assert len(structures(tmp_path / "1")) == 2 * 2 * 3


def test_error_in_a_result_fails_only_its_target(tmp_path: Path) -> None:
    targets = write_targets(tmp_path / "in", ["a", "late"])
    failures = run(tmp_path / "out", targets, workers=0)
    assert [(name, str(error)) for name, error in failures.failed] == [
        ("late", "when the result was collected")
    ]
    assert finished(tmp_path / "out", ["a", "late"]) == ["a"]


def test_seconds_of_overlapping_jobs_are_not_counted_twice(tmp_path: Path) -> None:
    class SlowCopier(Predictor):
        def start(self, *arguments: Any) -> Any:
            return lambda: (time.sleep(0.05),)

    copier = SlowCopier([TEMPLATE_COPY], SETTINGS, CPU)
    runner = LocalRunner(copier)
    job = Job(TEMPLATE_COPY, 0, "tag")
    start = time.perf_counter()
    collects = [runner.start("t", job, None, lambda done, total: None) for _ in range(2)]
    seconds = [collect().cost.seconds for collect in collects]
    assert min(seconds) >= 0.04 and sum(seconds) <= time.perf_counter() - start


@pytest.mark.parametrize("families", [("monomer",), ("multimer",)])
def test_warm_up_runs_the_network_once(
    families: tuple[FamilyName, ...], caplog: pytest.LogCaptureFixture
) -> None:
    sources = find_parameters(tiny_parameters(), (1,), "auto", families)
    # as if it were a GPU
    predictor = TinyPredictor(sources, SETTINGS, NetworkMemory("cuda:0"))
    with caplog.at_level(logging.DEBUG, "foldcli"):
        for _ in range(2):
            predictor.warm_up(sources[0])
        assert predictor._warm_up is not None
        predictor._warm_up.result()
        predictor.end_warm_up()
    assert caplog.text.count("the network is loaded") == caplog.text.count("the GPU is warmed up") == 1


def test_warm_up_ends_when_there_is_a_job(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = find_parameters(tiny_parameters(), (1,), "auto", ("monomer",))
    predictor = TinyPredictor(sources, SETTINGS, NetworkMemory("cuda:0"))
    network, started, passes = predictor.network(sources[0]), Event(), list[int]()

    def warm_up(residues: int) -> None:
        passes.append(residues)
        started.set()
        time.sleep(0.5)

    monkeypatch.setattr(network, "warm_up", warm_up)
    # called by the start of the job
    monkeypatch.setattr(predictor, "wait_for_kernels", lambda: None)
    with caplog.at_level(logging.DEBUG, "foldcli"), ThreadPoolExecutor(1) as pool:
        predictor.warm_up(sources[0])
        started.wait()
        job = pool.submit(predictor.start, "t", Job(sources[0], 0, "tag"), None, lambda done, total: None)
        assert job.exception() is not None, "there is no GPU"
    assert len(passes) == 1
    assert "the network is loaded" in caplog.text and "the GPU is warmed up" not in caplog.text


def assert_similar(ours: Path, theirs: Path) -> None:
    """Compare the scores of two results with rounding of their last digit."""
    paths = list(ours.glob("*_scores_*.json"))
    assert len(paths) == 2
    for path in paths:
        mine, other = (json.loads(file.read_text()) for file in (path, theirs / path.name))
        for name in ("plddt", "pae"):
            assert np.allclose(mine[name], other[name], atol=0.011)


@pytest.mark.slow
def test_targets_of_a_worker_that_ends_twice_go_to_the_others(tmp_path: Path) -> None:
    # the longest come first
    names = ["a", "b", "c", "d", "killed3", "killed2", "killed1"]
    targets = write_targets(tmp_path / "in", names)
    failures = run(tmp_path / "out", targets, workers=2, models=(3,))
    assert sorted(name for name, _ in failures.failed) == ["killed1", "killed2", "killed3"]
    assert finished(tmp_path / "out", names) == ["a", "b", "c", "d"]
    assert not list(tmp_path.glob("out/*/.lock"))


@pytest.mark.slow
def test_worker_that_ends_loses_the_target_that_it_started_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # "slow_target", the longest, is collected while "killed" is started
    targets = write_targets(tmp_path / "in", ["a", "killed", "slow_target"])
    with caplog.at_level(logging.INFO, "foldcli"):
        failures = run(tmp_path / "out", targets, workers=1, models=(3,))
    assert [name for name, _ in failures.failed] == ["killed"]
    assert finished(tmp_path / "out", ["a", "slow_target"]) == ["a", "slow_target"]
    assert (
        caplog.text.count("it is predicted again") == 1 and "slow_target: the worker of cpu:0" in caplog.text
    )
    assert caplog.text.count("it is started again") == 1


def test_worker_that_ends_twice_is_not_started_again(caplog: pytest.LogCaptureFixture) -> None:
    sources = find_parameters(tiny_parameters(), (3,), "auto")
    predictor = TinyPredictor(sources, SETTINGS, CPU)
    worker = DeviceWorker(tiny_workers(predictor, 1))

    def start() -> None:
        worker.start("killed", Job(sources[0], 0, "tag"), {}, lambda done, total: None)

    for _ in range(2):
        with pytest.raises(ChildProcessError, match="SIGKILL"):
            start()
    assert not worker.usable and not worker._services
    assert caplog.text.count("it is started again") == caplog.text.count("it is not started again") == 1
    with pytest.raises(JobInterrupted):
        start()
    worker.close()


class HeldWorker:
    """A worker of this process whose target "long" ends after all others."""

    postpones, usable, detail = False, True, "held"
    started: ClassVar[list[str]] = []
    others = Semaphore(0)

    def __init__(self, settings: Sequence[WorkerSettings], *arguments: Any) -> None:
        first = settings[0]
        self._runner = LocalRunner(TinyPredictor(list(first.sources), first.predict, CPU))

    def start(self, name: str, job: Job, sample: Any, progress: Progress) -> Any:
        self.started.append(name)
        if name == "long":
            for _ in range(5):
                assert self.others.acquire(timeout=30)
        else:
            self.others.release()
        return self._runner.start(name, job, sample.load(), progress)

    def terminate(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def test_no_target_waits_for_a_worker_that_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_devices, "DeviceWorker", HeldWorker)
    names = ["a", "b", "c", "d", "e", "long"]
    targets = write_targets(tmp_path / "in", names)
    assert not run(tmp_path / "out", targets, workers=2, models=(3,)).failed
    assert finished(tmp_path / "out", names) == names
    # the longest come first
    assert sorted(HeldWorker.started[:2]) == ["e", "long"] and HeldWorker.started[2:] == ["d", "c", "b", "a"]


@dataclass(frozen=True)
class MarkedSettings(TinyWorkerSettings):
    """Settings that mark the start of their worker with a folder."""

    mark: str = ""

    def open(self) -> Predictor:
        """Make the predictor, and the folder."""
        predictor = super().open()
        Path(self.mark).mkdir()
        return predictor


def test_worker_is_prepared_before_its_first_job(tmp_path: Path) -> None:
    sources = tuple(find_parameters(tiny_parameters(), (3,), "auto"))
    prepared = Event()
    mark = tmp_path / "mark"
    settings = MarkedSettings(sources, SETTINGS, "cpu:0", mark=str(mark))
    worker = DeviceWorker([settings], prepared.set)
    deadline = time.monotonic() + 60
    while not mark.is_dir():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert prepared.is_set()
    worker.close()


def test_loss_of_the_gpu_ends_a_run_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_worker, "lost", [])
    # the longest comes first
    targets = write_targets(tmp_path / "in", ["a", "cuda"])
    with pytest.raises(MissingError, match="the GPU cannot be used"):
        run(tmp_path / "out", targets, workers=0, memory=tiny_worker.TinyMemory("cpu"))
    assert tiny_worker.lost == ["cuda"] and not finished(tmp_path / "out", ["a"])


@pytest.mark.slow
def test_pairs_of_workers_predict_targets_together(tmp_path: Path) -> None:
    targets = write_targets(tmp_path / "in", ["a", "b"])
    assert not run(tmp_path / "out", targets, workers=5, models=(3,), per_target=2).failed
    for name in ("a", "b"):
        facts = json.loads(TargetFiles(name, tmp_path / "out").path("done").read_text())["facts"]
        assert facts["gpus_per_target"] == 2


@pytest.mark.parametrize(
    ("devices", "ranks", "expected"),
    [(1, 2, ""), (2, 2, ""), (3, 2, "2"), (3, 1, ""), (8, 3, "67")],
)
def test_devices_that_are_left_over(devices: int, ranks: int, expected: str) -> None:
    assert list(unused_devices("01234567"[:devices], ranks, None)) == list(expected)
    assert not unused_devices("012", 2, RankAssignment(0, 2, 0, 2, "a", 1))


@pytest.mark.parametrize(
    ("devices", "ranks", "expected"),
    [(1, 1, False), (2, 1, True), (3, 2, False), (4, 2, True), (4, 3, False)],
)
def test_devices_for_several_targets_are_workers(devices: int, ranks: int, expected: int) -> None:
    assert predicts_in_workers(devices, ranks, None) == bool(expected)
    assert not (ranks > 1 and predicts_in_workers(devices, ranks, RankAssignment(0, ranks, 0, ranks, "a", 1)))


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cuda:0,2", ("cuda:0", "cuda:2")), ("cuda:1", ("cuda:1",)), ("cuda", ("cuda",)), ("auto", ("auto",))],
)
def test_each_listed_gpu_is_a_device(device: str, expected: tuple[str, ...]) -> None:
    options = NetworkOptions(None, (1,), "auto", device, None, None, "auto", SETTINGS)
    assert options.devices == expected
