"""DeepMind's parameter files, with every key and shape checked, and random parameters in their place."""

import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    path, expected = Path(path), expected_shapes(config)
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ParametersError("is a single array; an npz file of named arrays is needed", path)
            # keys first: an error about them should not wait for all arrays to be read
            _check_keys(archive.files, expected, config, path)
            arrays = {key: archive[key] for key in expected}
    except FileNotFoundError as error:
        remedy = f"put DeepMind's params_{config.name}.npz there, or name the folder that has it"
        raise ParametersMissing(f"{path}: no such file", remedy) from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ParametersError(f"truncated or corrupt ({error})", path) from error
    except ParametersError:
        raise
    except ValueError as error:
        # what numpy says of files that are no npz and of pickled arrays
        raise ParametersError("is no npz file of plain arrays", path) from error
    _check_arrays(arrays, expected, config, path)
    return {key: np.asarray(array, np.float32) for key, array in arrays.items()}


def _check_keys(
    found: Sequence[str], expected: Mapping[str, tuple[int, ...]], config: ModelConfig, path: Path
) -> None:
    missing = [key for key in expected if key not in found]
    unknown = [key for key in found if key not in expected]
    if missing or unknown:
        problems = "; ".join(filter(None, [_listed("missing", missing), _listed("unknown", unknown)]))
        raise ParametersError(f"does not hold the parameters of {config.name}: {problems}", path)


def _check_arrays(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]], config: ModelConfig, path: Path
) -> None:
    misshapen = [
        f"{key} is {arrays[key].shape} instead of {shape}"
        for key, shape in expected.items()
        if arrays[key].shape != shape
    ]
    if misshapen:
        raise ParametersError(f"does not fit {config.name}: {_listed('wrong shape', misshapen)}", path)
    mistyped = [f"{key} ({array.dtype})" for key, array in arrays.items() if array.dtype.kind != "f"]
    if mistyped:
        raise ParametersError(_listed("not floating point", mistyped), path)
    infinite = [key for key, array in arrays.items() if not np.isfinite(array).all()]
    if infinite:
        raise ParametersError(_listed("not finite", infinite), path)


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
