"""Tests of the start of predictions: preloading and the bytecode cache."""

import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.alphafold2 import compiled_sampling
from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from foldcli.families.settings import AlphaFold2Settings, NetworkOptions
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline.network.preloading import start_preloading, take_file
from foldcli.pipeline.network.processes import Processes
from foldcli.pipeline.network.start import start
from foldcli.pipeline.prepare.sampling_process import prepare_features
from msa.alignments.files import parse_alignment
from msa.base.cpu_kernels.jit import kernel
from tests.networks import tiny_parameters


def source_of(file: Path | None) -> ParameterSource:
    """Return a model whose parameters are in a file."""
    return ParameterSource(1, "model_1_ptm", file)


def test_preloading_reads_the_parameters(tmp_path: Path) -> None:
    np.savez(tmp_path / "params.npz", x=np.arange(3.0))
    arrays = start_preloading("cpu", source_of(tmp_path / "params.npz"))
    assert arrays is not None
    assert arrays.result()["x"].tolist() == [0, 1, 2] and arrays.result()["x"].dtype == np.float32
    assert start_preloading("cpu", source_of(None)) is None
    missing = start_preloading("cpu", source_of(tmp_path / "none.npz"))
    assert missing is not None and isinstance(missing.exception(), FileNotFoundError)


def has_read_ahead(source: ParameterSource) -> bool:
    """Return True if this process, a worker, has read the file of a source."""
    arrays = take_file(source)
    return isinstance(arrays, Future) and "shape" in dir(next(iter(arrays.result().values())))


def test_workers_start_with_the_run(tmp_path: Path) -> None:
    options = NetworkOptions(tiny_parameters(), (1,), "auto", "cpu", None, None, "auto", AlphaFold2Settings())
    startup = start(options, processes=Processes(worker_devices=("cpu",)))
    assert startup.arrays is None
    (service,) = startup.worker_services
    # `eval` itself imports nothing
    assert service.request("call", eval, "'torch' in __import__('sys').modules").result(60)
    taken = [service.request("call", has_read_ahead, startup.sources[0]).result(60) for _ in range(2)]
    assert taken == [True, False]
    service.close()
    assert start(options, preload=False, processes=Processes(worker_devices=("cpu",))).worker_services == ()


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [0, 1])
def test_numba_is_imported_only_by_the_processes_that_sample(sampling: int) -> None:
    code = f"""
import sys, time
from foldcli.families.settings import AlphaFold2Settings, NetworkOptions
from foldcli.pipeline.network.processes import Processes
from foldcli.pipeline.network.start import start

options = NetworkOptions({tiny_parameters()!r}, (1,), "auto", "cpu", None, None, "auto", AlphaFold2Settings())
startup = start(options, processes=Processes(sampling={sampling}))
end = time.monotonic() + (30 if startup.sampling is None else 1)
while "numba" not in sys.modules and time.monotonic() < end:
    time.sleep(0.05)
assert ("numba" in sys.modules) == (startup.sampling is None)
if startup.sampling is not None:
    startup.sampling.terminate()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sampling_compiles_nothing_after_its_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("assign", "add_members", "fill_msa_feat")
    for name in names:  # as in a new process
        monkeypatch.setattr(compiled_sampling, name, kernel(getattr(compiled_sampling, name).__wrapped__))

    def compiled() -> dict[str, list[Any]]:
        return {name: list(getattr(compiled_sampling, name).compiled().signatures) for name in names}

    prepare_features()
    prepared = compiled()
    assert all(prepared.values())
    features = make_features([parse_alignment(b">a\nMKVLA\n" + b">b\nMKV-A\n>c\nMRVLA\n" * 40)])
    sample_features(features, SamplingSettings(max_seq=8, max_extra_seq=16), 2, 0)
    assert compiled() == prepared


@pytest.mark.parametrize("may_write", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_bytecode_goes_to_the_cache_if_the_installation_cannot_store_it(
    tmp_path: Path, compiled: bool, may_write: bool
) -> None:
    (tmp_path / "torch.py").write_text("")
    if compiled:
        (tmp_path / "__pycache__").mkdir()
        (tmp_path / "__pycache__" / f"torch.{sys.implementation.cache_tag}.pyc").write_bytes(b"")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "FOLDCLI_CACHE": str(tmp_path / "own")}
    env |= {} if may_write else {"PYTHONDONTWRITEBYTECODE": "1"}
    code = "import sys; from foldcli.process_state import keep_bytecode as f; f(); print(sys.pycache_prefix)"
    result = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, check=True)
    expected = None if compiled or may_write else tmp_path / "own" / "bytecode"
    assert result.stdout.strip() == str(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        # imported by `fold` and `predict` before the background threads start
        (
            "foldcli.pipeline.network.start, foldcli.inputs.cached_targets, foldcli.inputs.queries",
            {"torch", "numba"},
        ),
        # imported by `search --server`, which needs no search engine
        ("foldcli.search_runs.settings, foldcli.server.client", {"torch", "numba"}),
        ("foldcli.pipeline.runs.cache_run", {"torch"}),
        # imported by `fold` and `predict` before the run begins
        (
            "foldcli.pipeline.runs.run, foldcli.pipeline.prepare.template_stage, "
            "foldcli.pipeline.network.ranks",
            {"gemmi", "jinja2", "matplotlib", "cuda.fused.attention.differentiable"},
        ),
        # imported by `search` before it starts the GPU's driver
        (
            "foldcli.__main__, foldcli.commands.search, msa.gpu.device.cuda_context",
            {"torch", "numba", "numpy", "tqdm"},
        ),
        # imported by workers that write results
        (
            "foldcli.outputs.model_files, foldcli.pipeline.results.publishing, foldcli.report.make, "
            "foldcli.report.plots, model.output.modelcif, model.output.residues, model.output.scores",
            {"torch", "numba"},
        ),
        # imported by `search` for a table
        (
            "foldcli.search_runs.table",
            {"torch", "numba", "tqdm", "foldcli.params", "foldcli.outputs.done"},
        ),
        # imported by `search` on a GPU
        (
            "foldcli.pipeline.search.searcher, msa.search.engine_selection, msa.search.iterations",
            {"torch", "numba"},
        ),
    ],
)
def test_modules_that_must_load_quickly_do_not_import_slow_ones(modules: str, absent: set[str]) -> None:
    code = f"import sys, {modules}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert not absent & set(result.stdout.split())


@pytest.mark.slow
def test_runs_import_numba_only_to_sample_features(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from typing import Any
import foldcli.pipeline.network.ranks, foldcli.pipeline.runs.run, foldcli.pipeline.search.searcher
import foldcli.pipeline.prepare.template_stage
from features.cache.cache import FeatureCache
from msa.alignments.files import parse_alignment

cache = FeatureCache(Path({str(tmp_path)!r}))
alignment = [parse_alignment(b">a\\nACDE\\n>b\\nAC-E\\n")]
cache.load_or_make(alignment)
assert "numba" not in sys.modules
cache.load_or_make(alignment)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
