"""Tests of arrays in memory that another process maps."""

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from foldcli.pipeline.processes.shared_arrays import SharedArrays, share_arrays
from foldcli.pipeline.processes.worker_pool import WorkerPool

ARRAYS = {
    "floats": np.random.default_rng(0).random((3, 5, 7)).astype(np.float32),
    "empty": np.zeros((0, 4), np.int64),
    "mask": np.array([[True, False, True]]),
    "transposed": np.arange(12, dtype=np.int8).reshape(3, 4).T,
    "number": np.array(2.5),
}


def shared_arrays(arrays: dict[str, np.ndarray]) -> SharedArrays:
    shared = share_arrays(arrays)
    assert isinstance(shared, SharedArrays)
    return shared


def sums(shared: SharedArrays) -> dict[str, float]:
    return {name: float(array.sum()) for name, array in shared.load().items()}


def test_another_process_reads_the_arrays() -> None:
    shared = shared_arrays(ARRAYS)
    pool = WorkerPool(1)
    try:
        assert pool.submit(sums, shared).result() == {name: float(a.sum()) for name, a in ARRAYS.items()}
    finally:
        pool.close()


def test_arrays_are_equal_and_changes_stay_private() -> None:
    shared = shared_arrays(ARRAYS)
    loaded = pickle.loads(pickle.dumps(shared)).load()
    for name, array in ARRAYS.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(loaded[name], array)
        loaded[name].fill(0)
    loaded = shared.load()
    # the arrays stay valid without the object that they come from
    del shared
    gc.collect()
    assert np.array_equal(loaded["floats"], ARRAYS["floats"])


def test_memory_is_freed_with_the_object() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    shared = shared_arrays({"large": np.ones(1 << 20)})
    pickled = pickle.dumps(shared)
    assert len(pickled) < 1000
    reopened = pickle.loads(pickled)
    reopened.keep_open()
    pickled = pickle.dumps(reopened)
    del shared
    gc.collect()
    assert pickle.loads(pickled).load()["large"].sum() == 1 << 20
    del reopened
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(OSError, match=f"/proc/{os.getpid()}/fd/"):
        pickle.loads(pickled).load()


def test_arrays_are_filled_in_place() -> None:
    shared = SharedArrays()
    first, last = (
        shared.empty("first", (3,), np.dtype(np.int16)),
        shared.empty("last", (0, 2), np.dtype(float)),
    )
    assert not first.any() and last.shape == (0, 2)
    first[:] = 1, 2, 3
    loaded = pickle.loads(pickle.dumps(shared)).load()
    assert loaded["first"].tolist() == [1, 2, 3] and loaded["last"].shape == (0, 2)
    assert {name: array.shape for name, array in SharedArrays().load().items()} == {}
