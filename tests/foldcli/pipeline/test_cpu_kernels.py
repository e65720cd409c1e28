"""Tests of the compilation of CPU kernels ahead of a run's first target."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from foldcli.pipeline.cpu_kernels import ALIGNMENTS, FEATURES, ITERATIONS, compile_cpu_kernels


def test_kernels_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    compile_cpu_kernels(ALIGNMENTS).result()
    compiled = list(tmp_path.rglob("row_filter.*.nbc"))
    assert compiled
    for path in compiled:
        path.unlink()
    # a mark says that they are compiled
    compile_cpu_kernels(ALIGNMENTS).result()
    assert not list(tmp_path.rglob("row_filter.*.nbc"))
    # the mark of another version of the modules does not count
    (mark,) = tmp_path.rglob("compiled-*")
    mark.write_text("other")
    compile_cpu_kernels(ALIGNMENTS).result()
    assert list(tmp_path.rglob("row_filter.*.nbc")) and mark.read_text() != "other"


def test_failed_compilations_leave_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    for calls in (("no_such_function", "_numba_state"), ("_numba_state", "no_such_function")):
        compile_cpu_kernels(calls).result()
        assert not list(tmp_path.rglob("compiled-*"))


@pytest.mark.slow
def test_searches_and_features_compile_no_further_kernels(tmp_path: Path) -> None:
    rng = random.Random(0)
    query = "".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=120))
    relatives = ["".join(rng.choice("AG") if rng.random() < 0.2 else c for c in query) for _ in range(1100)]
    records = "".join(f">s{k}\n{sequence}\n" for k, sequence in enumerate(relatives))
    (tmp_path / "db.fasta").write_text(records)
    (tmp_path / "query.fasta").write_text(f">query\n{query}\n")
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "FOLDCLI_CACHE": str(tmp_path / "cache")}
    calls = (*ITERATIONS, *FEATURES, *ALIGNMENTS)
    code = f"from foldcli.pipeline.cpu_kernels import *; compile_cpu_kernels({calls}).result()"
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    ahead = _compiled(tmp_path)
    command = ["cache-features", "query.fasta", "--db", "db.fasta", "--cache", "features", "--device", "cpu"]
    subprocess.run([sys.executable, "-m", "foldcli", *command], env=env, check=True, cwd=tmp_path)
    # the filter of the CPU engine, and the construction of the database
    others = {"gapless", "fasta_blocks", "length_sort", "masking", "mmseqs_database"}
    assert len(ahead) > 20
    assert {name.partition(".")[0] for name in _compiled(tmp_path) - ahead} <= others


def _compiled(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.nbc")}
