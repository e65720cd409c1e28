"""Fixtures: parameter files of zeros, and computation with one thread."""

import zipfile
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from model.alphafold2.modules.config import model_config
from model.checkpoints.alphafold2 import expected_shapes
from tests.networks import one_torch_thread

Npz = Callable[[str], bytes]


@pytest.fixture(scope="session")
def npz(tmp_path_factory: pytest.TempPathFactory) -> Npz:
    """Return a function that makes a parameter file of zeros with a network's keys and shapes."""
    folder, files = tmp_path_factory.mktemp("npz"), {}

    def make(network: str) -> bytes:
        shapes = expected_shapes(model_config(network))
        shapes_key = tuple(shapes.items())
        if shapes_key not in files:
            path = folder / f"{network}.npz"
            # like np.savez_compressed, which compresses more and takes twice as long
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for key, shape in shapes_key:
                    with archive.open(f"{key}.npy", "w") as stream:
                        np.lib.format.write_array(stream, np.zeros(shape, np.float32))
            files[shapes_key] = path.read_bytes()
        return files[shapes_key]

    return make


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute with one thread, which is faster for a tiny network."""
    with one_torch_thread():
        yield
