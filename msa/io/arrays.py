"""Arrays in NumPy archives (.npz): no pickled objects, and types and sizes are checked before reading."""

import io
import math
import zipfile
from typing import Any

import numpy as np

_HEADER_BYTES = 256
_MAX_BYTES = 1 << 28


def write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    """Add an array to an archive; equal arrays give equal bytes."""
    content = io.BytesIO()
    np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
    # ZipInfo's default date is a constant, so that equal arrays give equal files
    archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)


def read_array(
    archive: zipfile.ZipFile,
    name: str,
    dtype: "np.dtype[Any] | type",
    shape: tuple[int, ...],
    max_bytes: int = _MAX_BYTES,
) -> np.ndarray:
    """Read one array of an archive after checking its unpacked size.

    Args:
        archive: an open archive.
        name: name of the array.
        dtype: expected dtype.
        shape: expected shape; (-1,) allows a vector of any length.
        max_bytes: maximum size of a vector of any length.

    Raises:
        KeyError: there is no such array.
        ValueError: it has another type or shape. Damaged archives raise other errors of zipfile, zlib and
            numpy.
    """
    dtype = np.dtype(dtype)
    member = archive.getinfo(f"{name}.npy")
    if shape != (-1,):
        max_bytes = math.prod(shape) * dtype.itemsize
    if not 0 <= member.file_size <= max_bytes + _HEADER_BYTES:
        raise ValueError(f"{name} has {member.file_size} bytes")
    stream = io.BytesIO(archive.read(member))
    read_header = (
        np.lib.format.read_array_header_1_0
        if np.lib.format.read_magic(stream) == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    # numpy does not read the array itself: it would allocate as much memory as a damaged header asks for
    array_shape, fortran_order, array_dtype = read_header(stream)
    data = stream.read()
    if (
        array_dtype != dtype
        or fortran_order
        or (array_shape != shape and (shape != (-1,) or len(array_shape) != 1))
        or math.prod(array_shape) * dtype.itemsize != len(data)
    ):
        raise ValueError(f"{name} is {array_dtype} {list(array_shape)} in {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(array_shape)
