"""Use a GPU through the driver, and search; run by test_device.py with the driver of fake_driver.c."""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cuda import driver
from cuda.alignment import DeviceSequences, device, kernel_cache
from cuda.alignment.binary_kernel import BinaryKernel
from cuda.alignment.memory_pool import Block, MemoryPool
from cuda.alignment.smith_waterman import Pairs, end_positions, trace_paths
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.gpu.device.database_stream import DatabaseStream
from msa.gpu.device.devices import find_gpu
from msa.gpu.device.memory import allocate_on_gpu, is_out_of_memory
from msa.gpu.worker import kernel_compiler
from msa.gpu.worker.interface import GpuSettings
from msa.io.fasta import FastaRecord
from msa.search.database_search import search_many
from msa.search.engine_selection import create_engine


def load_binary(path: Path, signature: str) -> BinaryKernel:
    """Replace the function of kernel_cache: every kernel is in the cache."""
    return BinaryKernel(b"code", path.name.rpartition("_sm90_")[0], signature)


def allocate_zeros(
    pool: MemoryPool, size: int, allocate: Callable[[MemoryPool, int], Block] = MemoryPool.allocate
) -> Block:
    """Replace the method of MemoryPool: no kernel of this driver writes results, which are then zeros."""
    block = allocate(pool, size)
    ctypes.memset(block.address, 0, block.size)
    return block


def check_arrays() -> None:
    """Check copies, views, streams and events."""
    stream, event = device.new_stream(urgent=True), device.event()
    numbers = np.arange(12, dtype=np.int32)
    for queue in None, stream:
        array = device.to_device(numbers, stream=queue)
        matrix = array.reshape(3, 4)
        assert array[3:5].copy_to_host(stream=queue).tolist() == [3, 4]
        assert matrix[1].copy_to_host().tolist() == [4, 5, 6, 7] and matrix[2, 1:3].size == 2
        assert matrix[2, 1:3].copy_to_host().tolist() == [9, 10] and matrix.strides == (16, 4)
        assert array.view(np.int16)[2:4].copy_to_host().tolist() == [1, 0]
        array[:2].copy_to_device(np.array([7, 8], np.int32), stream=queue)
        array[:0].copy_to_device(np.empty(0, np.int32))
        assert array.copy_to_host(np.zeros(12, np.int32), stream=queue)[:3].tolist() == [7, 8, 2]
    for wrong in np.zeros(2, np.int64), np.zeros(3, np.int32):
        try:
            array[:2].copy_to_device(wrong)
        except ValueError:
            continue
        raise AssertionError
    event.record(stream)
    event.wait(stream)
    event.synchronize()
    assert event.elapsed_time(event) == 1.5
    pinned = device.pinned_array((2, 3), np.int16)
    assert pinned.shape == (2, 3) and not pinned.any()
    device.synchronize()


def check_memory() -> None:
    """Check that freed blocks are reused, and freed when memory runs out."""
    address = allocate_on_gpu(1000, np.dtype(np.int32)).address
    assert allocate_on_gpu(1001, np.dtype(np.int32)).address == address
    free, total = device.memory_info()
    large = [allocate_on_gpu(100 * 2**20, np.dtype(np.uint8)) for _ in range(9)]
    assert total - device.memory_info()[0] >= 900 * 2**20
    try:
        allocate_on_gpu(200 * 2**20, np.dtype(np.uint8))
    except Exception as error:
        assert is_out_of_memory(error)
    else:
        raise AssertionError
    large.clear()
    # the freed segments make room for a larger one
    assert allocate_on_gpu(600 * 2**20, np.dtype(np.uint8)).size == 600 * 2**20
    device.release_unused()
    assert device.memory_info()[0] > free - 2**20
    # reserved memory is divided, and the driver is not asked again
    free = device.memory_info()[0]
    device.reserve(100 * 2**20)
    blocks = [allocate_on_gpu(40 * 2**20, np.dtype(np.uint8)) for _ in range(2)]
    assert device.memory_info()[0] == free - 100 * 2**20
    assert abs(blocks[0].address - blocks[1].address) == 40 * 2**20
    blocks.clear()
    device.release_unused()
    assert device.memory_info()[0] == free
    device.reserve(2 * total)
    assert device.memory_info()[0] == free


def check_database_memory() -> None:
    """Check that a database's memory goes back to the driver."""
    free, size = device.memory_info()[0], 40 * 2**20
    targets = SequenceArrays(np.zeros(size, np.uint8), np.zeros(1, np.int64), np.array([size], np.int32))
    stream = DatabaseStream(targets, (0, 1), 0, 2**30, 0)
    for chunk in stream.chunks(1):
        chunk.ready.synchronize()
    assert stream.resident and device.memory_info()[0] < free - size
    del chunk
    stream.close()
    assert device.memory_info()[0] > free - size


def check_alignment(kernels: Path) -> None:
    """Check that all launches of an alignment are accepted."""
    profiles, codes = [np.ones((40, 32), np.int16)] * 2, [np.zeros(40, np.uint8)] * 2
    arrays = np.zeros(96, np.uint8), np.array([0, 48], np.int64), np.array([48, 48], np.int32)
    targets = DeviceSequences(*map(device.to_device, arrays))
    pairs = Pairs(np.array([0, 1, 1], np.int32), np.array([0, 0, 1]), np.array([48] * 3, np.int32))
    stream = device.new_stream()
    ends = end_positions(profiles, targets, pairs, stream=stream, kernels=kernels)
    assert ends.shape == (3, 3)
    ends[:] = 30, 20, 25
    paths = trace_paths(profiles, codes, targets, pairs, ends, stream=stream, kernels=kernels)
    assert not paths.records[:, [0, 1, 2, 5, 6, 7]].any() and not len(paths.runs)


def check_search(database: TargetDatabase, kernels: Path) -> None:
    """Check a search, with the database on the GPU and passing through it."""
    queries = [FastaRecord(f"q{k}", "MKTAYIAKQR" * (k + 1)) for k in range(9)]
    for max_bytes in (None, 1000):
        engine = create_engine("cuda", GpuSettings(kernels, 0.9, None), lambda reason: None)
        if max_bytes is not None:
            # in this process instead of one of its own
            worker = engine.workers[0]
            worker.settings = type(worker.settings)(kernels, max_database_bytes=max_bytes)
            engine._replacement_workers = lambda targets: None
        found = list(search_many(queries, database, SearchSettings(), engine=engine))
        assert len(found) == 9 and engine.workers[0].resident == (max_bytes is None)
        engine.close()


if __name__ == "__main__":
    kernel_cache.load_binary = load_binary  # type: ignore[assignment]
    kernel_compiler.is_cached = lambda *arguments: True  # type: ignore[assignment]
    folder = Path(sys.argv[1])
    kernel_cache.set_cache_folder(folder)
    gpu = find_gpu()
    assert (gpu.name, gpu.capability, gpu.driver) == ("NVIDIA H200", (9, 0), (13, 0)), gpu
    assert driver.result_name(2) == driver.OUT_OF_MEMORY
    check_arrays()
    check_memory()
    check_database_memory()
    MemoryPool.allocate = allocate_zeros  # type: ignore[method-assign]
    check_alignment(folder)
    check_search(TargetDatabase.open(Path(sys.argv[2])), folder)
    print("numba.cuda" in sys.modules)
