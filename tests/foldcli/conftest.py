"""Parameter files to try things with."""

import zipfile
from collections.abc import Callable

import numpy as np
import pytest

from model.config import model_config
from model.parameters import expected_shapes

Npz = Callable[[str], bytes]


@pytest.fixture(scope="session")
def npz(tmp_path_factory: pytest.TempPathFactory) -> Npz:
    """A parameter file with a network's keys and shapes and nothing but zeros, by the network's name."""
    folder, made = tmp_path_factory.mktemp("npz"), {}

    def of(network: str) -> bytes:
        shapes = expected_shapes(model_config(network))
        kind = tuple(shapes.items())
        if kind not in made:
            path = folder / f"{network}.npz"
            # as np.savez_compressed, which compresses harder and takes twice as long
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for key, shape in kind:
                    with archive.open(f"{key}.npy", "w") as stream:
                        np.lib.format.write_array(stream, np.zeros(shape, np.float32))
            made[kind] = path.read_bytes()
        return made[kind]

    return of
