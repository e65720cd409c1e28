"""DeepMind's parameter files: names of the arrays, and reading of npz files.

This module does not import torch, so that a thread can read parameters while torch is still being imported.

A key consists of a scope and a name: `alphafold/alphafold_iteration/evoformer/preprocess_1d//weights`. The
blocks of a stack share one key; its array has a leading axis of blocks. In AlphaFold-Multimer's files, the
left and the right layer of a triangle multiplication share one, too: they are halves of its last axis.
"""

import contextlib
import errno
import hashlib
import io
import math
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from model.alphafold2.modules.config import MultimerConfig
from model.errors import ParametersError, ParametersMissing

_ROOT_SCOPE = "alphafold/alphafold_iteration"
# modules that group layers in `model.alphafold2.network` and have no scope in the files
_WITHOUT_SCOPE = frozenset(
    {"heads", "input_embedding", "recycling_embedding", "extra_msa_embedding", "template_torsion_embedding"}
)
# modules that have other names in the files
_SCOPES = {
    "template_pair_stack": "template_pair_stack/__layer_stack_no_state",
    "relative_encoding": "~_relative_encoding",
    "relative_position": "pair_activiations",
    "pair_norm": "feat_2d_norm",
    "pair_embedding": "embedding2d",
    "hidden_0": "act_0",
    "hidden_1": "act_1",
}
_TEMPLATE_EMBEDDINGS = (
    "distances", "beta_mask", "column_types", "row_types", "direction_x", "direction_y", "direction_z",
    "backbone_mask", "query_pair",
)  # fmt: skip
_SCOPES |= {name: f"template_pair_embedding_{number}" for number, name in enumerate(_TEMPLATE_EMBEDDINGS)}
# parameters that have other names in the files
_NAMES = {
    "query": "query_w",
    "key": "key_w",
    "value": "value_w",
    "gating": "gating_w",
    "gating_bias": "gating_b",
    "output": "output_w",
    "output_bias": "output_b",
    "pair_bias": "feat_2d_weights",
}
# modules with other scopes in AlphaFold-Multimer's files
_MULTIMER_SCOPES = {"affine_update": "quat_rigid/rigid"}
# scopes of the layers of triangle multiplication in files that join two of them, and their half of the array
_JOINED_TRIANGLE_LAYERS = {
    "layer_norm_input": ("left_norm_input", None),
    "left_projection": ("projection", 0),
    "right_projection": ("projection", 1),
    "left_gate": ("gate", 0),
    "right_gate": ("gate", 1),
    "center_layer_norm": ("center_norm", None),
}

# maximum number of keys that an error message names; the rest are counted
MAX_NAMED_KEYS = 3
_MAX_HEADER_BYTES = 1 << 16
_NOT_NPZ = "not an npz file of plain arrays, or damaged"
# sizes of a zip file's records (APPNOTE.TXT 4.3), without names and extra fields
_LOCAL_HEADER_BYTES, _DIRECTORY_ENTRY_BYTES, _DESCRIPTOR_BYTES = 30, 46, 24
_END_BYTES, _ZIP64_LOCATOR_BYTES, _ZIP64_END_BYTES = 22, 20, 56
_ZIP64_LOCATOR = b"PK\x06\x07"
# offset of the lengths of name and extra field in a local header
_LOCAL_LENGTHS_OFFSET = 26
_HAS_DESCRIPTOR = 0x08
# largest size of all arrays; DeepMind's files have 0.37 GB
_MAX_BYTES = 1 << 32

# shape and type of each array, by key
ArrayHeaders = dict[str, tuple[tuple[int, ...], np.dtype]]
Path = str | os.PathLike[str]


class ParameterKey(NamedTuple):
    """The part of a parameter file that holds one tensor of a network.

    Args:
        key: the array's key.
        block: index of the tensor's block in its stack, or None outside of stacks.
        half: 0 or 1 if the tensor is the first or second half of the array's last axis, otherwise None.
    """

    key: str
    block: int | None
    half: int | None


def parameter_key(tensor_name: str, multimer: MultimerConfig | None = None) -> ParameterKey:
    """Return the part of a parameter file that holds a tensor, given its name in the network's state.

    A name is, for example, `evoformer.extra_msa_stack.3.msa_transition.transition1.bias`. Files of
    AlphaFold-Multimer networks name some layers differently.
    """
    *scopes, name = tensor_name.split(".")
    block = next((int(scope) for scope in scopes if scope.isdigit()), None)
    path = [_SCOPES.get(s, s) for s in scopes if s not in _WITHOUT_SCOPE and not s.isdigit()]
    half: int | None = None
    if multimer is not None:
        path = [_MULTIMER_SCOPES.get(scope, scope) for scope in path]
        if multimer.joined_projections and path[-2].startswith("triangle_multiplication_"):
            path[-1], half = _JOINED_TRIANGLE_LAYERS.get(path[-1], (path[-1], None))
    return ParameterKey(f"{'/'.join([_ROOT_SCOPE, *path])}//{_NAMES.get(name, name)}", block, half)


def read_headers(path: Path) -> tuple[ArrayHeaders, str]:
    """Read the arrays' headers, without their data.

    Returns:
        Shape and type of each array, and a digest of the content: the SHA-256 (hex) of the names and
        checksums in the zip file's directory.

    Raises:
        ParametersError: an array occurs twice, or has another size than its header says.
        Exception: the file is damaged; `parameter_errors` converts the many types of this error.
    """
    headers: ArrayHeaders = {}
    digest = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            digest.update(f"{entry.filename}\0{entry.CRC}\0".encode())
            with archive.open(entry) as stream:
                beginning = io.BytesIO(stream.read(_MAX_HEADER_BYTES))
            shape, _, dtype = _read_npy_header(beginning)
            key = entry.filename.removesuffix(".npy")
            if key in headers:
                raise ParametersError(f"{key} occurs twice", path)
            # other types are refused later, whatever their size
            if dtype.kind == "f" and entry.file_size != beginning.tell() + math.prod(shape) * dtype.itemsize:
                reason = f"{key} has {entry.file_size} bytes, which are not those of {dtype} {list(shape)}"
                raise ParametersError(reason, path)
            headers[key] = shape, dtype
    return headers, digest.hexdigest()


def foreign_bytes(path: Path) -> int:
    """Return the number of bytes in an npz file that belong neither to an array nor to the zip's directory.

    Raises:
        Exception: the file is damaged; `parameter_errors` converts the many types of this error.
    """
    with zipfile.ZipFile(path) as archive, pathlib.Path(path).open("rb") as stream:
        stream.seek(-_END_BYTES - _ZIP64_LOCATOR_BYTES, os.SEEK_END)
        has_zip64_end = stream.read(len(_ZIP64_LOCATOR)) == _ZIP64_LOCATOR
        known_bytes = _END_BYTES + has_zip64_end * (_ZIP64_LOCATOR_BYTES + _ZIP64_END_BYTES)
        for entry in archive.infolist():
            stream.seek(entry.header_offset + _LOCAL_LENGTHS_OFFSET)
            name_bytes, extra_bytes = (int.from_bytes(stream.read(2), "little") for _ in range(2))
            known_bytes += _LOCAL_HEADER_BYTES + name_bytes + extra_bytes + entry.compress_size
            known_bytes += _DESCRIPTOR_BYTES if entry.flag_bits & _HAS_DESCRIPTOR else 0
            known_bytes += _DIRECTORY_ENTRY_BYTES + name_bytes + len(entry.extra) + len(entry.comment)
        size = stream.seek(0, os.SEEK_END)
    return max(size - known_bytes, 0)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays, as float32, by key.

    Raises:
        ParametersError: an array contains infinities or NaN, or the arrays are too large.
        Exception: the file is damaged; `parameter_errors` converts the many types of this error.
    """
    with zipfile.ZipFile(path) as archive:
        if (size := sum(entry.file_size for entry in archive.infolist())) > _MAX_BYTES:
            raise ParametersError(f"its arrays have {size:,} bytes, too many for a network", path)
        arrays = {
            entry.filename.removesuffix(".npy"): _parse_npy(archive.read(entry))
            for entry in archive.infolist()
        }
    if infinite := [key for key, array in arrays.items() if not np.isfinite(array).all()]:
        raise ParametersError(format_keys("not finite", infinite), path)
    return arrays


def _parse_npy(content: bytes) -> np.ndarray:
    """Return the array in the content of an npy file.

    `numpy.load` reads 256 KiB at a time and reacquires the interpreter lock after each, which is slow while
    other threads are busy.
    """
    stream = io.BytesIO(content)
    shape, fortran_order, dtype = _read_npy_header(stream)
    flat = np.frombuffer(content, dtype, math.prod(shape), stream.tell())
    return np.array(flat.reshape(shape, order="F" if fortran_order else "C"), np.float32, order="C")


def _read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read shape, Fortran order and type from the start of an npy file."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype] = read(stream)
    return header


@contextlib.contextmanager
def parameter_errors(path: Path, network: str) -> Iterator[None]:
    """Convert exceptions of zipfile and numpy into errors that name the file and the network.

    Raises:
        ParametersMissing: the file does not exist.
        ParametersError: the file is not an npz file of plain arrays, or is truncated or corrupt.
        OSError: the file cannot be read; the error names it.
    """
    try:
        yield
    except FileNotFoundError as error:
        remedy = f"put DeepMind's params_{network}.npz there, or specify the folder that contains it"
        raise ParametersMissing(f"{path}: no such file", remedy) from error
    except (ParametersError, MemoryError):
        raise
    except OSError as error:
        # a damaged directory makes zipfile seek to a negative offset
        if error.errno != errno.EINVAL:
            error.filename = error.filename or os.fspath(path)
            raise
        raise ParametersError(f"{_NOT_NPZ} (wrong offsets)", path) from error
    except Exception as error:  # zipfile, zlib and numpy raise many classes for damaged data
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ParametersError(f"{_NOT_NPZ} ({reason:.200})", path) from error


def format_keys(problem: str, keys: list[str]) -> str:
    """Describe a problem by its first keys and the number of others; return an empty string without keys."""
    more = f" and {len(keys) - MAX_NAMED_KEYS} more" if len(keys) > MAX_NAMED_KEYS else ""
    return f"{problem}: {', '.join(keys[:MAX_NAMED_KEYS])}{more}" if keys else ""
