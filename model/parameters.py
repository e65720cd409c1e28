"""DeepMind's parameter files, with every key and shape checked, and random parameters in their place."""

import os
import zlib
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch

from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.errors import ParametersError
from model.naming import shapes_of
from model.npz import Kinds, listed, read_arrays, read_headers, told_of

Path = str | os.PathLike[str]


@cache
def expected_shapes(config: ModelConfig) -> Mapping[str, tuple[int, ...]]:
    """Every key that a network's parameter file must have, with the shape of its array."""
    stacks = {"evoformer_iteration": config.evoformer.blocks, "extra_msa_stack": config.extra_msa.blocks}
    # one block tells the shapes of all
    shallow = config.with_blocks(*(min(1, blocks) for blocks in stacks.values()))
    with torch.device("meta"):
        shapes = shapes_of(AlphaFold(shallow))
    return {
        key: (stacks[stack], *shape[1:]) if (stack := key.split("/")[3]) in stacks else shape
        for key, shape in shapes.items()
    }


def check_npz(path: Path, config: ModelConfig) -> str:
    """Check the keys, shapes and types of `params_model_*.npz` by the arrays' headers alone.

    Args:
        path: the file.
        config: the network that the parameters are for.

    Returns:
        What tells the content from another's; see `model.npz.read_headers`.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: as for `load_npz`, but for what only reading the arrays shows.
    """
    with told_of(path, config.name):
        kinds, content = read_headers(path)
        _check(kinds, config, path)
    return content


def load_npz(
    path: Path, config: ModelConfig, read: Callable[[Path], dict[str, np.ndarray]] = read_arrays
) -> dict[str, np.ndarray]:
    """Read `params_model_*.npz`.

    Args:
        path: the file.
        config: the network that the parameters are for.
        read: gives the arrays as `model.npz.read_arrays` does, called once the headers are checked.

    Returns:
        float32 arrays by key.

    Raises:
        ParametersMissing: there is no such file.
        ParametersError: it is no npz file, is truncated or corrupt, or a key is missing, unknown, or has an
            array of the wrong shape or type, or one that holds infinities or NaN.
    """
    check_npz(path, config)
    with told_of(path, config.name):
        return read(path)


def _check(kinds: Kinds, config: ModelConfig, path: Path) -> None:
    expected = expected_shapes(config)
    missing = [key for key in expected if key not in kinds]
    unknown = [key for key in kinds if key not in expected]
    if missing or unknown:
        problems = "; ".join(filter(None, [listed("missing", missing), listed("unknown", unknown)]))
        raise ParametersError(f"does not hold the parameters of {config.name}: {problems}", path)
    if mistyped := [f"{key} ({dtype})" for key, (_, dtype) in kinds.items() if dtype.kind != "f"]:
        raise ParametersError(listed("not floating point", mistyped), path)
    misshapen = [
        f"{key} is {kinds[key][0]} instead of {shape}"
        for key, shape in expected.items()
        if kinds[key][0] != shape
    ]
    if misshapen:
        raise ParametersError(f"does not fit {config.name}: {listed('wrong shape', misshapen)}", path)


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
