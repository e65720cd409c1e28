"""Initial parameters of a network to be trained: drawn, or those of a trained network.

They are drawn as DeepMind's code does (supplement section 1.11.4). Layers whose output is added to a
representation start at zero: a deep network starts as a shallow one.
"""

import math
import zlib
from dataclasses import replace
from pathlib import Path

import torch

from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.checkpoints.alphafold2 import build_network, expected_shapes, load_folder, load_npz
from model.checkpoints.deepmind import parameter_errors, read_headers
from model.checkpoints.network_folder import folder_of, read_manifest
from model.errors import ConfigError

# standard deviation of a normal distribution truncated at two standard deviations
_TRUNCATED_DEVIATION = 0.87962566103423978
# output layers, by the last parts of their names
_ZERO_WEIGHTS = (
    "transition2", "transition_2", "output_projection", "resblock2", "resblock2_1", "affine_update", "logits",
    "half_logits", "gating_linear", "left_gate", "right_gate",
)  # fmt: skip
_RELU = (
    "transition1", "transition", "transition_1", "resblock1", "resblock1_1", "hidden_0", "hidden_1",
    "pair_embedding", "template_single_embedding", "template_projection",
)  # fmt: skip
_GATES = frozenset({"gating_linear", "left_gate", "right_gate"})
_GLOROT = frozenset({"query", "key", "value"})
# Inputs that no training sample has, because the training data have no deletion counts. Their weights start
# at zero and stay there, so that alignments with deletions do not meet weights that were never trained.
_UNSEEN_INPUTS = {"preprocess_msa": (23, 24, 48), "extra_msa_activations": (23, 24)}


@torch.no_grad()
def initialize(network: AlphaFold, seed: int) -> None:
    """Draw all parameters of a float32 network on the CPU, each from the seed and its own name alone."""
    for name, parameter in network.named_parameters():
        _draw(name, parameter, generator_of(seed, name))


def generator_of(seed: int, name: str) -> torch.Generator:
    """Return the generator of a parameter's values."""
    return torch.Generator().manual_seed((seed * 2654435761 + zlib.crc32(name.encode())) % 2**63)


def truncated_normal(
    tensor: torch.Tensor, inputs: int, scale: float, generator: torch.Generator
) -> torch.Tensor:
    """Fill a layer's weights from a normal distribution with the variance scale / inputs, and return them."""
    deviation = math.sqrt(scale / inputs) / _TRUNCATED_DEVIATION
    limit = 2 * deviation
    return torch.nn.init.trunc_normal_(tensor, 0.0, deviation, -limit, limit, generator=generator)


@torch.no_grad()
def copy_trained(network: AlphaFold, config: ModelConfig, trained: str) -> None:
    """Replace the parameters of a network by trained ones; a PAE head that these lack is kept.

    The network is on the CPU, float32. `trained` is a folder that `foldcli train --package` wrote, "compact"
    for the one in the package, or one of DeepMind's files, params_model_*.npz, of a monomer network.

    Raises:
        ConfigError: the trained network has another shape.
        ParametersMissing, ParametersError: see `model.checkpoints.alphafold2.load_folder` and `load_npz`.
    """
    if trained.endswith(".npz"):
        source = _read_npz(Path(trained), config)
    else:
        folder = folder_of(trained)
        manifest = read_manifest(folder)
        if _without_error_head(manifest.config) != _without_error_head(config):
            raise ConfigError(f"initial_network: {trained} has another shape than `network`")
        source = build_network(manifest.config, load_folder(folder, manifest))
    parameters = dict(network.named_parameters())
    for name, values in source.named_parameters():
        if name in parameters:
            parameters[name].copy_(values)


def _read_npz(path: Path, config: ModelConfig) -> AlphaFold:
    """Return the network of one of DeepMind's files, with the shape of a configuration."""
    with parameter_errors(path, config.name):
        headers, _ = read_headers(path)
    has_error_head = any("/predicted_aligned_error_head/" in key for key in headers)
    source = replace(config, predicted_aligned_error=has_error_head)
    if {key: shape for key, (shape, _) in headers.items()} != dict(expected_shapes(source)):
        raise ConfigError(f"initial_network: {path} has another shape than `network`")
    return build_network(source, load_npz(path, source))


def _without_error_head(config: ModelConfig) -> ModelConfig:
    """Return an architecture without its name and its PAE head, for comparisons."""
    return replace(config, name="", trained=True, predicted_aligned_error=False)


def _draw(name: str, parameter: torch.Tensor, generator: torch.Generator) -> None:
    *_, layer, kind = name.split(".")
    if kind == "scale" or kind == "gating_bias" or (kind == "bias" and layer in _GATES):
        parameter.fill_(1.0)
    elif kind == "trainable_point_weights":
        parameter.fill_(math.log(math.e - 1.0))  # softplus gives 1
    elif kind in ("offset", "bias", "output_bias", "gating", "output") or layer in _ZERO_WEIGHTS:
        parameter.zero_()
    elif kind in _GLOROT:
        outputs = parameter[0].numel()
        limit = math.sqrt(6.0 / (parameter.shape[0] + outputs))
        parameter.uniform_(-limit, limit, generator=generator)
    elif kind == "pair_bias":
        parameter.normal_(0.0, parameter.shape[0] ** -0.5, generator=generator)
    else:
        truncated_normal(parameter, parameter.shape[0], 2.0 if layer in _RELU else 1.0, generator)
        for row in _UNSEEN_INPUTS.get(layer, ()):
            parameter[row].zero_()
