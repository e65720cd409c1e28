"""Parameter files as they lie on disk: npz files of plain arrays. Read without torch, and so before it."""

import contextlib
import hashlib
import io
import math
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
                shape, _, dtype = _header(stream)
                kinds[entry.filename.removesuffix(".npy")] = shape, dtype
    return kinds, digest.hexdigest()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Float32 arrays by key.

    Raises:
        ParametersError: an array holds infinities or NaN.
    """
    with zipfile.ZipFile(path) as archive:
        arrays = {
            entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in archive.infolist()
        }
    if infinite := [key for key, array in arrays.items() if not np.isfinite(array).all()]:
        raise ParametersError(listed("not finite", infinite), path)
    return arrays


def _array(content: bytes) -> np.ndarray:
    """The array of a npy file.

    numpy's own reader takes a quarter of a megabyte at a time, and waits for the interpreter's lock after
    each where other threads are busy.
    """
    stream = io.BytesIO(content)
    shape, in_columns, dtype = _header(stream)
    flat = np.frombuffer(content, dtype, math.prod(shape), stream.tell())
    return np.array(flat.reshape(shape, order="F" if in_columns else "C"), np.float32, order="C")


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


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Of a npy file the shape, whether columns come first, and the type."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype] = read(stream)
    return header
