"""Features made ahead change no byte of what a prediction writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.shard import Shard
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.identity import Identities
from foldcli.pipeline.loading import TargetLoader
from foldcli.pipeline.network_memory import NetworkMemory
from foldcli.pipeline.output_location import Place
from foldcli.pipeline.prediction import predict_target
from foldcli.pipeline.predictor import Predictor, PredictSettings
from foldcli.pipeline.prefetcher import Ahead
from foldcli.report.make import ReportSettings

SEQUENCES = {"a": "MKVLAAGIV", "b": "GGSWTLPEKR"}
REPORT = ReportSettings(page=False, plots=False)
SETTINGS = PredictSettings(num_recycle=0, num_seeds=2, max_seq=8, max_extra_seq=6)


def predicted(out: Path, inputs: Path, ahead: bool) -> dict[str, bytes]:
    """What is written for all targets by two models and two seeds, but for done.json."""
    predictor = Predictor(find_parameters("demo", (1, 3), "auto"), SETTINGS, NetworkMemory("cpu"), ahead)
    loader = TargetLoader(
        Place(out, "default", Shard(), False), out / "cache", predictor, Identities([], SETTINGS)
    )
    targets = [(name, AlignmentTarget(name, (str(inputs / f"{name}.a3m"),))) for name in SEQUENCES]
    with predictor:
        loading = Ahead(targets, loader.load_and_draw, predictor.background)
        for name, _ in targets:
            loaded = loading.take()
            assert loaded is not None and loaded.target.name == name
            finished = predict_target(loaded, predictor, REPORT, loading.start)
            assert ahead or finished.done()
    files = [path for name in SEQUENCES for path in (out / name).iterdir()]
    return {path.name: path.read_bytes() for path in files if not path.name.endswith("done.json")}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name, sequence in SEQUENCES.items():
        rows = [sequence] + [sequence[:k] + "-" + sequence[k + 1 :] for k in range(len(sequence))]
        rows += [sequence[:k] + "W" + sequence[k + 1 :] for k in range(len(sequence))]
        (tmp_path / f"{name}.a3m").write_text("".join(f">r\n{row}\n" for row in rows))
    return tmp_path


def test_same_bytes_with_and_without(inputs: Path) -> None:
    with_it, without = (predicted(inputs / str(ahead), inputs, ahead) for ahead in (True, False))
    assert len(with_it) == 2 * 2 * 2 * 3  # targets, models, seeds, files
    assert with_it == without
