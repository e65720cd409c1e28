"""Tests of predictions: random features, and the same bytes with and without background threads."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.shard import Shard
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.background import Prefetcher
from foldcli.pipeline.device import NetworkMemory
from foldcli.pipeline.identity import TargetIdentities
from foldcli.pipeline.predictor import FeatureSampler, Predictor
from foldcli.pipeline.run import TargetLoader, predict_target
from foldcli.pipeline.settings import FeatureSettings, OutputSettings, PredictSettings
from foldcli.report import ReportSettings
from msa.io.alignments import parse_alignment

SEQUENCES = {"a": "MKVLAAGIV", "b": "GGSWTLPEKR"}
REPORT = ReportSettings(page=False, plots=False)
SETTINGS = PredictSettings(num_recycles=0, num_seeds=2, max_seq=8, max_extra_seq=6)


@pytest.fixture
def features() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY-"), size=30)).replace("-", "A")]
    rows += ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY-"), size=30)) for _ in range(60)]
    return make_features([parse_alignment("".join(f">r\n{row}\n" for row in rows).encode())])


@pytest.fixture(params=["background", "calling thread"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "background":
        with ThreadPoolExecutor(1) as pool:
            yield pool
    else:
        yield None


def test_sampled_features_depend_on_settings_and_seed_only(
    features: dict[str, np.ndarray], executor: Executor | None
) -> None:
    with_templates, without = SamplingSettings(20, 30, 4), SamplingSettings(20, 30, 0)
    samplings = [(with_templates, 0), (without, 0), (without, 0), (without, 1)]
    sampler = FeatureSampler(features, samplings, 2, executor)
    sampler.sample_first()
    samples = [sampler.take() for _ in samplings]
    assert sampler.remaining == 0
    # consecutive jobs with the same sampling share their features
    assert samples[1] is samples[2] and samples[2] is not samples[3]
    for sample, (settings, seed) in zip(samples, samplings, strict=True):
        expected = sample_features(features, settings, 2, seed)
        assert sample.keys() == expected.keys()
        assert all(sample[name].tobytes() == value.tobytes() for name, value in expected.items())


def predict_all(out: Path, inputs: Path, background: bool) -> dict[str, bytes]:
    """Predict all targets with two models and two seeds, and return the files without done.json."""
    predictor = Predictor(find_parameters("demo", (1, 3), "auto"), SETTINGS, NetworkMemory("cpu"), background)
    output = OutputSettings(out, "default", Shard(), False, REPORT)
    loader = TargetLoader(output, FeatureSettings(out / "cache"), predictor, TargetIdentities([], SETTINGS))
    targets = [(name, AlignmentTarget(name, (str(inputs / f"{name}.a3m"),))) for name in SEQUENCES]
    with predictor:
        prefetcher = Prefetcher(targets, loader.load_and_sample, predictor.executor)
        for name, _ in targets:
            loaded = prefetcher.take()
            assert loaded is not None and loaded.target.name == name
            finished = predict_target(loaded, predictor, REPORT, prefetcher.start)
            assert background or finished.done()
    files = [path for name in SEQUENCES for path in (out / name).iterdir()]
    return {path.name: path.read_bytes() for path in files if not path.name.endswith("done.json")}


@pytest.fixture
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


def test_background_threads_do_not_change_the_results(inputs: Path, one_thread: None) -> None:
    with_threads, without = (predict_all(inputs / str(value), inputs, value) for value in (True, False))
    assert len(with_threads) == 2 * 2 * 2 * 3  # targets, models, seeds, files
    assert with_threads == without
