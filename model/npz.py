"""Parameter files as they lie on disk: npz files of plain arrays. Read without torch, and so before it."""

import contextlib
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np

from model.errors import ParametersError, ParametersMissing

# how many keys an error names before it only counts them
NAMED_KEYS = 3

Kinds = dict[str, tuple[tuple[int, ...], np.dtype]]
Path = str | os.PathLike[str]


def read_headers(path: Path) -> tuple[Kinds, str]:
    """What the arrays' headers alone tell.

    Returns:
        Shape and type of each array, and what tells the content from another's: SHA-256 (hex) of the names
        and checksums that the file lists.
    """
    kinds, digest = {}, hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            digest.update(f"{entry.filename}\0{entry.CRC}\0".encode())
            with archive.open(entry) as stream:
                kinds[entry.filename.removesuffix(".npy")] = _header(stream)
    return kinds, digest.hexdigest()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Float32 arrays by key.

    Raises:
        ParametersError: an array holds infinities or NaN.
    """
    with np.load(path, allow_pickle=False) as archive:
        arrays = {key: np.asarray(archive[key], np.float32) for key in archive.files}
    if infinite := [key for key, array in arrays.items() if not np.isfinite(array).all()]:
        raise ParametersError(listed("not finite", infinite), path)
    return arrays


@contextlib.contextmanager
def told_of(path: Path, network: str) -> Iterator[None]:
    """What zipfile and numpy say of an unusable file of a network, as errors that name it.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: it is no npz file of plain arrays, is truncated or corrupt.
    """
    try:
        yield
    except FileNotFoundError as error:
        remedy = f"put DeepMind's params_{network}.npz there, or name the folder that has it"
        raise ParametersMissing(f"{path}: no such file", remedy) from error
    except ParametersError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise ParametersError(f"no npz file of plain arrays, or a damaged one ({error})", path) from error


def listed(what: str, keys: list[str]) -> str:
    """The first of the keys, and how many more there are; nothing without any."""
    more = f" and {len(keys) - NAMED_KEYS} more" if len(keys) > NAMED_KEYS else ""
    return f"{what}: {', '.join(keys[:NAMED_KEYS])}{more}" if keys else ""


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a npy file."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype
