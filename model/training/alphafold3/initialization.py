"""Initial parameters of an all-atom network: drawn, or those of a trained network.

In a drawn network, layers whose output is added to a representation start at zero, so that a deep network
starts as a shallow one; so do gates. Names are those of OpenFold3's parameter files, and the draws follow its
code.
"""

import re
from dataclasses import replace
from pathlib import Path

import torch

from model.alphafold3.network import AlphaFold3
from model.checkpoints.openfold3 import read_checkpoint, source_of
from model.dataclass_mapping import flat_values
from model.errors import ConfigError
from model.training.runtime.initialization import generator_of, truncated_normal

_ADA_GATE = re.compile(r"linear_ada_out|conditioned_transition\.linear_g")
_ADA_GATE_BIAS = -2.0
# outputs of layers that are added to a representation, gates, and scales and shifts of conditions
_ZERO = re.compile(
    r"^linear_[sz]|(tri_mul_\w+|mha|msa_att_row)\.linear_g|tri_mul_\w+\.linear_(z|a_g|b_g)"
    r"|layer_norm(_a|_a_q|_a_k)?\.linear_[gs]|outer_product_mean\.linear_out|msa_att_row\.linear_o"
    r"|(tri_att_\w+|attn_pair_bias)\.mha\.linear_o|(?<!conditioned)_transition\.linear_out"
    r"|transition_[sz]\.\d+\.linear_out|pair_mlp\.5|linear_q_out|noisy_position_embedder\.linear_[sz]"
    r"|diffusion_module\.linear_s|aux_heads\.(pae|pde|plddt|experimentally_resolved|distogram)\.linear"
)
_RELU = re.compile(r"swiglu\.linear_[ab]|pair_mlp\.[13]|template_pair_embedder\.linear_z")


@torch.no_grad()
def initialize(network: AlphaFold3, seed: int) -> None:
    """Draw all parameters of a float32 network on the CPU, each from the seed and its own name alone."""
    for name, tensor in network.state_dict().items():
        source = source_of(name, tuple(tensor.shape))
        if source.name is None:
            tensor.zero_()
            continue
        drawn = _draw(source.name, source.shape, generator_of(seed, source.name))
        tensor.copy_(drawn.T.reshape(tensor.shape) if source.transposed else drawn)


def copy_trained(network: AlphaFold3, file: Path) -> None:
    """Replace all tensors of a network by trained ones, the embedding of the noise included.

    The network is on the CPU, float32. The file is one of `model.checkpoints.openfold3.read_checkpoint`, of
    the same architecture.

    Raises:
        ConfigError: the trained network has another architecture; names the settings that differ.
        ParametersMissing, ParametersError: the file cannot be used.
    """
    config, tensors = read_checkpoint(file)
    ours, theirs = (flat_values(replace(each, name="")) for each in (network.config, config))
    different = ", ".join(f"{key} is {theirs[key]}" for key in ours if ours[key] != theirs[key])
    if different:
        raise ConfigError(f"initial_network: {file} has another shape than `network`: {different}")
    network.load_state_dict(tensors)


def _draw(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return the values of a parameter of OpenFold3."""
    path, _, leaf = name.rpartition(".")
    if path.endswith("fourier_emb"):
        draw = torch.randn if leaf == "w" else torch.rand
        return draw(shape, generator=generator)
    if leaf == "bias":
        return torch.full(shape, _ADA_GATE_BIAS if _ADA_GATE.search(path) else 0.0)
    if len(shape) == 1:
        return torch.ones(shape)
    if _ZERO.search(path) or _ADA_GATE.search(path):
        return torch.zeros(shape)
    scale = 2.0 if _RELU.search(path) else 1.0
    return truncated_normal(torch.empty(shape), shape[1], scale, generator)
