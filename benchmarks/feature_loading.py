"""Time that the network waits for features, with and without cache and background thread.

    python benchmarks/feature_loading.py [--targets 50] [--rows 8000] [--columns 256] [--device auto]

Predicts random targets of ROWS × COLUMNS with the code of `foldcli predict`, in all four combinations. Prints
total seconds, seconds in the network, seconds waiting for features (also as a fraction of the total), and the
rest, which is spent on writing structures. Without the cache a target's alignment is read and its features
are computed; with it the entry is loaded. Features are sampled for each target.

On a GPU the network is model 3, or those of --models, with random parameters. On a CPU it is a stand-in:
matrix products for --network-seconds per pass.

Finally prints how much a background thread delays the main thread, which launches kernels: the time that a
thread with small torch operations neither runs nor waits for a core while another thread computes, loads or
samples features.
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
from model.prediction import Prediction
from msa.io.alignments import read_alignment

LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY-", np.uint8)


def write_alignment(path: Path, rows: int, columns: int, seed: int) -> None:
    """Write a gzipped A3M with a random query, and rows in which 20 to 80 % of it are replaced or gaps."""
    rng = np.random.default_rng(seed)
    query = rng.integers(20, size=columns)
    codes = np.where(rng.random((rows, columns)) < rng.uniform(0.2, 0.8, (rows, 1)), 20, 0)
    codes = np.where(codes > 0, rng.integers(21, size=codes.shape), query)
    codes[0] = query
    text = b"".join(b">row%d\n%s\n" % (k, row.tobytes()) for k, row in enumerate(LETTERS[codes]))
    path.write_bytes(gzip.compress(text, 1))


class TimedPredictor(Predictor):
    """A predictor that counts the seconds in the network, which on a CPU is a stand-in."""

    busy = 0.0
    # seconds per pass of the stand-in, or None for the real network
    stand_in: float | None = None

    def network(self, source: ParameterSource) -> Any:
        """Return the network, or None if a stand-in replaces it."""
        return None if self.stand_in is not None else super().network(source)

    def infer(self, name: str, network: Any, features: dict[str, np.ndarray], progress: Any) -> Prediction:
        """Run the network or its stand-in and add up the seconds."""
        start = time.perf_counter()
        if self.stand_in is None:
            prediction = super().infer(name, network, features, progress)
        else:
            prediction = stand_in(features, self.stand_in)
        self.busy += time.perf_counter() - start
        return prediction


def stand_in(features: dict[str, np.ndarray], seconds: float) -> Prediction:
    """Compute matrix products for some seconds per pass, and return a random structure."""
    matrix = torch.rand(384, 384)
    end = time.perf_counter() + seconds * len(features["aatype"])
    while time.perf_counter() < end:
        torch.mm(matrix, matrix)
    residues = features["aatype"].shape[1]
    positions = np.random.default_rng(0).normal(size=(residues, 37, 3)).astype(np.float32)
    return Prediction(
        features["aatype"][0].astype(np.int64),
        features["residue_index"][0].astype(np.int64),
        positions,
        features["atom37_atom_exists"][0],
        np.full(residues, 50.0),
        0.5,
        np.ones((residues, residues), np.float32),
        31.75,
        len(features["aatype"]) - 1,
        (),
    )


@dataclass
class Seconds:
    """The seconds of one run: total, in the network, and waiting for features."""

    total: float
    network: float
    waited: float


def measure(
    predictor: TimedPredictor, targets: list[str], load: Callable[[str], dict[str, np.ndarray]], out: Path
) -> Seconds:
    """Predict all targets with features returned by `load`, and return the times."""

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


def scheduled_seconds() -> float:
    """Return the seconds that this thread has run or waited for a core."""
    path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
    ran, waited = Path(path).read_text().split()[:2]
    return (int(ran) + int(waited)) / 1e9


def print_delay(label: str, work: Callable[[], Any]) -> None:
    """Print how long another thread's work delays small torch operations of this thread."""
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
    begin, before = time.perf_counter(), scheduled_seconds()
    thread.start()
    while not done.is_set():
        x.add_(1.0)
    wall, here = time.perf_counter() - begin, scheduled_seconds() - before
    thread.join()
    delayed = max(0.0, wall - here)
    print(
        f"{label:10} {1e3 * used:8.1f} ms of CPU time; the main thread was delayed by {1e3 * delayed:.1f} ms"
    )


def main() -> None:
    """Print the table and the delays."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", type=int, default=50)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", default="3")
    parser.add_argument("--num-recycle", dest="num_recycles", type=int, default=3)
    parser.add_argument("--network-seconds", type=float, default=0.1, help="per pass, on a CPU")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    settings = PredictSettings(
        num_recycles=options.num_recycles,
        precision=choose_precision(None, device),
        kernels=choose_kernels("auto", device),
    )
    sources = [ParameterSource(int(n), f"model_{n}_ptm", None) for n in options.models.split(",")]
    hardware = f"{torch.cuda.get_device_name()}, network" if device != "cpu" else "CPU, stand-in"
    print(
        f"{options.targets} targets of {options.rows:,} rows × {options.columns}, models {options.models}, "
        f"{options.num_recycles} recycles, {hardware}\n"
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
        loaders: dict[str, Callable[[str], dict[str, np.ndarray]]] = {
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
                # all combinations share the networks, which stay loaded and compiled
                predictor._networks = networks
                for loader_name, load in loaders.items():
                    measure(predictor, targets[:2], load, root / "warm")
                    seconds = measure(predictor, targets, load, root / f"out-{loader_name}-{ahead}")
                    rest = seconds.total - seconds.network - seconds.waited
                    print(
                        f"{loader_name:10} {'ahead' if ahead else 'none':8} {seconds.total:8.2f} "
                        f"{seconds.network:8.2f} {seconds.waited:8.2f} {rest:8.2f}   "
                        f"{100 * seconds.waited / seconds.total:6.1f} %",
                        flush=True,
                    )
        features = cache.load(keys[targets[0]])
        passes = options.num_recycles + 1
        print("\ndelay of small operations of the main thread:")
        print_delay("alignment", lambda: loaders["alignment"](targets[0]))
        print_delay("cache", lambda: loaders["cache"](targets[0]))
        print_delay("sampling", lambda: sample_features(features, SamplingSettings(), passes, seed=0))


if __name__ == "__main__":
    main()
