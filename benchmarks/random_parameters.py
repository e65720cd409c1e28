"""Random parameters of AlphaFold2's networks by DeepMind's names, for tests and benchmarks."""

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from foldcli.params.manifest import ParameterManifest
from model.alphafold2.modules.config import ModelConfig, model_config
from model.checkpoints.alphafold2 import expected_shapes

_STACK_SCOPES = (
    "/extra_msa_stack/",
    "/evoformer_iteration/",
    "/__layer_stack_no_state/",
    "/template_embedding_iteration/",
)
_GATE_LAYERS = frozenset({"left_gate", "right_gate", "gate", "gating_linear"})
_BACKBONE_UPDATES = ("/affine_update", "/quat_rigid/rigid")


def random_parameters(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw random parameters for an untrained network.

    Each array depends only on the seed and its key; the blocks of a shallow stack equal the first blocks of a
    deeper one.
    No parameter is zero, so that every path through the network affects the output. Weights are scaled by
    1 / sqrt(inputs); scales and gate biases are drawn around 1, other biases and offsets around 0.

    Returns:
        float32 arrays by key.
    """
    return {key: _draw_array(key, shape, seed) for key, shape in expected_shapes(config).items()}


def _draw_array(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    scope, _, name = key.partition("//")
    layer = scope.rsplit("/", 1)[-1]
    random = np.random.default_rng([seed, zlib.crc32(key.encode())])
    normal = random.standard_normal(shape).astype(np.float32)
    if name in ("scale", "gating_b") or (name == "bias" and layer in _GATE_LAYERS):
        return np.float32(1.0) + np.float32(0.1) * normal
    if name == "trainable_point_weights":
        # softplus(log(e - 1)) = 1
        return np.float32(np.log(np.e - 1.0)) + np.float32(0.1) * normal
    if name in ("offset", "bias", "output_b"):
        return np.float32(0.1) * normal
    block_shape = shape[1:] if any(stack in key for stack in _STACK_SCOPES) else shape
    inputs = int(np.prod(block_shape[:-1])) if name == "output_w" else block_shape[0]
    # small backbone updates keep the structure compact
    gain = 0.3 if scope.endswith(_BACKBONE_UPDATES) else 1.0
    return np.float32(gain / np.sqrt(inputs)) * normal


def network_config(name: str, tiny: bool = False) -> ModelConfig:
    """Return a published architecture without templates; a tiny one has one narrow block in each stack."""
    config = model_config(name)
    if not tiny:
        return config
    heads = {"attention_heads": 2, "attention_channels": 8}
    pair = replace(config.evoformer.pair, channels=16, multiplication_channels=24, **heads)
    stacks = {
        stack: replace(old, blocks=1, pair=pair, msa=replace(old.msa, channels=32, outer_channels=8, **heads))
        for stack, old in (("evoformer", config.evoformer), ("extra_msa", config.extra_msa))
    }
    return replace(config, **stacks)


def write_random_parameters(folder: Path, config: ModelConfig) -> None:
    """Write a folder for `--params` with random parameters of a network, under its published name."""
    folder.mkdir(parents=True)
    file = f"params_{config.name}.npz"
    np.savez(folder / file, **random_parameters(config, int(config.name.split("_")[1])))
    if config != model_config(config.name):
        ParameterManifest(architectures={file: config}).write(folder)
