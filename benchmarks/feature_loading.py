"""How long the network waits for features, with and without cache, with and without the background thread.

    python benchmarks/feature_loading.py [--targets 50] [--rows 8000] [--columns 256] [--device auto]

Predicts made targets, of ROWS × COLUMNS each, one after another in the four ways, by the code that `foldcli
predict` runs, and prints for each: seconds in all, in the network, waiting for features, and the rest, which
is the writing of structures; what the network waits for is also a share of all. Without the cache, a target's
alignment is read and featurised; with it, its entry is loaded. Random features are drawn for every target.

On a GPU the network is that of model 3, or of those named by --models, with random parameters. On a CPU it is
a stand-in: matrix products for --network-seconds a pass.

At the end: what the background thread costs the first, which launches the network's kernels: for how long one
that does small torch operations neither runs nor waits for a core, while another featurises, loads or draws.
"""

import argparse
import gzip
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from features.cache import FeatureCache, cache_key
from features.deterministic import make_features
from features.sampling import SamplingSettings, sample_features
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.background import Prefetcher
from foldcli.pipeline.device import NetworkMemory, choose_device, choose_kernels, choose_precision
from foldcli.pipeline.predictor import FeatureSampler, Predictor
from foldcli.pipeline.settings import PredictSettings
from model.recycling import Prediction
from msa.io.alignments import read_alignment

LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY-", np.uint8)


def write_alignment(path: Path, rows: int, columns: int, seed: int) -> None:
    """A gzipped A3M: a random query, and rows in which 20 to 80 % of it are exchanged or gaps."""
    rng = np.random.default_rng(seed)
    query = rng.integers(20, size=columns)
    codes = np.where(rng.random((rows, columns)) < rng.uniform(0.2, 0.8, (rows, 1)), 20, 0)
    codes = np.where(codes > 0, rng.integers(21, size=codes.shape), query)
    codes[0] = query
    text = b"".join(b">row%d\n%s\n" % (k, row.tobytes()) for k, row in enumerate(LETTERS[codes]))
    path.write_bytes(gzip.compress(text, 1))


class TimedPredictor(Predictor):
    """Counts the seconds in the network, which on a CPU is a stand-in."""

    busy = 0.0
    stand_in: float | None = None
    """Seconds of a pass of the stand-in; None is the network itself."""

    def network(self, source: ParameterSource) -> Any:
        return None if self.stand_in is not None else super().network(source)

    def infer(self, name: str, network: Any, drawn: dict[str, np.ndarray], progress: Any) -> Prediction:
        start = time.perf_counter()
        if self.stand_in is None:
            prediction = super().infer(name, network, drawn, progress)
        else:
            prediction = stand_in(drawn, self.stand_in)
        self.busy += time.perf_counter() - start
        return prediction


def stand_in(drawn: dict[str, np.ndarray], seconds: float) -> Prediction:
    """Matrix products for that long per pass, and a structure that means nothing."""
    matrix = torch.rand(384, 384)
    end = time.perf_counter() + seconds * len(drawn["aatype"])
    while time.perf_counter() < end:
        torch.mm(matrix, matrix)
    residues = drawn["aatype"].shape[1]
    positions = np.random.default_rng(0).normal(size=(residues, 37, 3)).astype(np.float32)
    return Prediction(
        drawn["aatype"][0].astype(np.int64),
        drawn["residue_index"][0].astype(np.int64),
        positions,
        drawn["atom37_atom_exists"][0],
        np.full(residues, 50.0),
        0.5,
        np.ones((residues, residues), np.float32),
        31.75,
        len(drawn["aatype"]) - 1,
        (),
    )


@dataclass
class Seconds:
    """What one run took."""

    total: float
    network: float
    waited: float


def measure(
    predictor: TimedPredictor, targets: list[str], load: Callable[[str], dict[str, np.ndarray]], out: Path
) -> Seconds:
    """Predict all targets, their features from `load`."""

    def prepare(name: str) -> FeatureSampler:
        sampler = predictor.create_sampler(load(name), out / name / "partial")
        sampler.sample_first()
        return sampler

    predictor.busy, waited = 0.0, 0.0
    start = time.perf_counter()
    prefetcher = Prefetcher(targets, prepare, predictor.executor)
    for name in targets:
        sampler = prefetcher.take()
        assert sampler is not None
        waited += prefetcher.waited
        predictor.run(name, sampler, out / name / "partial", lambda done, total: None, prefetcher.start)
        waited += sampler.waited
        del sampler
    return Seconds(time.perf_counter() - start, predictor.busy, waited)


def scheduled() -> float:
    """Seconds for which this thread has run, or has waited for a core to run on."""
    path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
    ran, waited = Path(path).read_text().split()[:2]
    return (int(ran) + int(waited)) / 1e9


def print_disturbance(what: str, work: Callable[[], Any]) -> None:
    """How long this thread, at small operations of torch, is held up by another one that works."""
    x = torch.zeros(16)
    done = threading.Event()
    used = 0.0

    def other() -> None:
        nonlocal used
        start = time.thread_time()
        work()
        used = time.thread_time() - start
        done.set()

    thread = threading.Thread(target=other)
    begin, before = time.perf_counter(), scheduled()
    thread.start()
    while not done.is_set():
        x.add_(1.0)
    wall, here = time.perf_counter() - begin, scheduled() - before
    thread.join()
    held = max(0.0, wall - here)
    print(f"{what:10} {1e3 * used:8.1f} ms of a core; the first thread was held up for {1e3 * held:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", type=int, default=50)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", default="3")
    parser.add_argument("--num-recycle", type=int, default=3)
    parser.add_argument("--network-seconds", type=float, default=0.1, help="of a pass, on a CPU")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    settings = PredictSettings(
        num_recycles=options.num_recycle,
        precision=choose_precision(None, device),
        kernels=choose_kernels("auto", device),
    )
    sources = [ParameterSource(int(n), f"model_{n}_ptm", None) for n in options.models.split(",")]
    what = f"{torch.cuda.get_device_name()}, network" if device != "cpu" else "CPU, stand-in"
    print(
        f"{options.targets} targets of {options.rows:,} rows × {options.columns}, models {options.models}, "
        f"{options.num_recycle} recycles, {what}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        targets = [f"t{k:03d}" for k in range(options.targets)]
        keys: dict[str, str] = {}
        cache = FeatureCache(root / "cache")
        for k, name in enumerate(targets):
            write_alignment(root / f"{name}.a3m.gz", options.rows, options.columns, k)
            alignment = read_alignment(root / f"{name}.a3m.gz")
            keys[name] = cache_key([alignment])
            cache.store(keys[name], make_features([alignment]))
        ways: dict[str, Callable[[str], dict[str, np.ndarray]]] = {
            "alignment": lambda name: make_features([read_alignment(root / f"{name}.a3m.gz")]),
            "cache": lambda name: cache.load(keys[name]),
        }
        print(
            f"{'features':10} {'thread':8} {'all':>8} {'network':>8} {'waits':>8} {'rest':>8}   share waiting"
        )
        networks: dict[Any, Any] = {}
        for ahead in (False, True):
            with TimedPredictor(sources, settings, NetworkMemory(device), ahead) as predictor:
                predictor.stand_in = options.network_seconds if device == "cpu" else None
                # the same networks, read and warm, for all
                predictor._networks = networks
                for way, load in ways.items():
                    measure(predictor, targets[:2], load, root / "warm")
                    took = measure(predictor, targets, load, root / f"out-{way}-{ahead}")
                    rest = took.total - took.network - took.waited
                    print(
                        f"{way:10} {'ahead' if ahead else 'none':8} {took.total:8.2f} {took.network:8.2f} "
                        f"{took.waited:8.2f} {rest:8.2f}   {100 * took.waited / took.total:6.1f} %",
                        flush=True,
                    )
        features = cache.load(keys[targets[0]])
        passes = options.num_recycle + 1
        print("\nbeside small operations of another thread:")
        print_disturbance("alignment", lambda: ways["alignment"](targets[0]))
        print_disturbance("cache", lambda: ways["cache"](targets[0]))
        print_disturbance("draws", lambda: sample_features(features, SamplingSettings(), passes, seed=0))


if __name__ == "__main__":
    main()
