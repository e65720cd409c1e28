"""DeepMind's parameter files, with every key and shape checked, and random parameters in their place."""

import contextlib
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch

from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.errors import ParametersError, ParametersMissing
from model.naming import shapes_of

# how many keys an error names before it only counts them
NAMED_KEYS = 3


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every key that a network's parameter file must have, with the shape of its array."""
    with torch.device("meta"):
        return shapes_of(AlphaFold(config))


def check_npz(path: str | os.PathLike[str], config: ModelConfig) -> str:
    """Check the keys, shapes and types of `params_model_*.npz` by the arrays' headers alone.

    Args:
        path: the file.
        config: the network that the parameters are for.

    Returns:
        What tells the content from another's: SHA-256 (hex) of the names and checksums that the file lists.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: as for `load_npz`, but for what only reading the arrays shows.
    """
    path, kinds, digest = Path(path), {}, hashlib.sha256()
    with _told_of(path, config), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            digest.update(f"{entry.filename}\0{entry.CRC}\0".encode())
            with archive.open(entry) as stream:
                kinds[entry.filename.removesuffix(".npy")] = _header(stream)
        _check(kinds, config, path)
    return digest.hexdigest()


def load_npz(path: str | os.PathLike[str], config: ModelConfig) -> dict[str, np.ndarray]:
    """Read `params_model_*.npz`.

    Args:
        path: the file.
        config: the network that the parameters are for.

    Returns:
        float32 arrays by key.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: it is no npz file, is truncated or corrupt, or a key is missing, unknown, or has an
            array of the wrong shape or type, or one that holds infinities or NaN.
    """
    check_npz(path, config)
    path = Path(path)
    with _told_of(path, config), np.load(path, allow_pickle=False) as archive:
        arrays = {key: np.asarray(archive[key], np.float32) for key in archive.files}
    if infinite := [key for key, array in arrays.items() if not np.isfinite(array).all()]:
        raise ParametersError(_listed("not finite", infinite), path)
    return arrays


@contextlib.contextmanager
def _told_of(path: Path, config: ModelConfig) -> Iterator[None]:
    """What zipfile and numpy say of an unusable file, as errors that name it."""
    try:
        yield
    except FileNotFoundError as error:
        remedy = f"put DeepMind's params_{config.name}.npz there, or name the folder that has it"
        raise ParametersMissing(f"{path}: no such file", remedy) from error
    except ParametersError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise ParametersError(f"no npz file of plain arrays, or a damaged one ({error})", path) from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a npy file."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _check(kinds: Mapping[str, tuple[tuple[int, ...], np.dtype]], config: ModelConfig, path: Path) -> None:
    expected = expected_shapes(config)
    missing = [key for key in expected if key not in kinds]
    unknown = [key for key in kinds if key not in expected]
    if missing or unknown:
        problems = "; ".join(filter(None, [_listed("missing", missing), _listed("unknown", unknown)]))
        raise ParametersError(f"does not hold the parameters of {config.name}: {problems}", path)
    if mistyped := [f"{key} ({dtype})" for key, (_, dtype) in kinds.items() if dtype.kind != "f"]:
        raise ParametersError(_listed("not floating point", mistyped), path)
    misshapen = [
        f"{key} is {kinds[key][0]} instead of {shape}"
        for key, shape in expected.items()
        if kinds[key][0] != shape
    ]
    if misshapen:
        raise ParametersError(f"does not fit {config.name}: {_listed('wrong shape', misshapen)}", path)


def _listed(what: str, keys: list[str]) -> str:
    more = f" and {len(keys) - NAMED_KEYS} more" if len(keys) > NAMED_KEYS else ""
    return f"{what}: {', '.join(keys[:NAMED_KEYS])}{more}" if keys else ""


def random_parameters(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Parameters of an untrained network, in the place of a file's.

    Each array depends on the seed and its key alone, and a shallower stack has the first blocks of a deeper
    one. Nothing is zero, so every path through the network shows in what it gives. Weights are scaled by
    the square root of their inputs; scales and gate biases are drawn around 1, other offsets around 0.

    Args:
        config: the network.
        seed: of the draw.

    Returns:
        float32 arrays by key.
    """
    return {key: _draw(key, shape, seed) for key, shape in expected_shapes(config).items()}


STACKS = ("/extra_msa_stack/", "/evoformer_iteration/", "/__layer_stack_no_state/")
GATES = frozenset({"left_gate", "right_gate", "gating_linear"})


def _draw(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    scope, _, name = key.partition("//")
    layer = scope.rsplit("/", 1)[-1]
    random = np.random.default_rng([seed, zlib.crc32(key.encode())])
    normal = random.standard_normal(shape).astype(np.float32)
    if name in ("scale", "gating_b") or (name == "bias" and layer in GATES):
        return np.float32(1.0) + np.float32(0.1) * normal
    if name == "trainable_point_weights":
        # softplus of this is 1
        return np.float32(np.log(np.e - 1.0)) + np.float32(0.1) * normal
    if name in ("offset", "bias", "output_b"):
        return np.float32(0.1) * normal
    one_block = shape[1:] if any(stack in key for stack in STACKS) else shape
    inputs = int(np.prod(one_block[:-1])) if name == "output_w" else one_block[0]
    # small steps keep the backbone from flying apart
    gain = 0.3 if layer == "affine_update" else 1.0
    return np.float32(gain / np.sqrt(inputs)) * normal
