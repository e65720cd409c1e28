"""Parameters of AlphaFold2's networks by DeepMind's names: files, checks, networks."""

import os
import pathlib
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import safetensors.torch
import torch

from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.checkpoints.deepmind import (
    ArrayHeaders,
    format_keys,
    parameter_errors,
    parameter_key,
    read_arrays,
    read_headers,
)
from model.checkpoints.network_folder import WEIGHTS_FILE, NetworkManifest, read_weights_file
from model.errors import ParametersError
from model.layers.kernels import Kernels

Path = str | os.PathLike[str]


@cache
def expected_shapes(config: ModelConfig) -> Mapping[str, tuple[int, ...]]:
    """Return every key of a network's parameter file and the shape of its array."""
    stacks = {"evoformer_iteration": config.evoformer.blocks, "extra_msa_stack": config.extra_msa.blocks}
    # all blocks of a stack have the same shapes, so one of each is enough
    shallow = config.with_blocks(*(min(1, blocks) for blocks in stacks.values()))
    with torch.device("meta"):
        network = AlphaFold(shallow)
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor_name, tensor in network.named_parameters():
        key, block, half = parameter_key(tensor_name, config.multimer)
        *leading, last = tensor.shape
        shape = (*leading, last if half is None else 2 * last)
        # blocks are visited in order, so the last index gives their number
        shapes[key] = shape if block is None else (block + 1, *shape)
    return {
        key: (stacks[stack], *shape[1:]) if (stack := key.split("/")[3]) in stacks else shape
        for key, shape in shapes.items()
    }


def check_npz(path: Path, config: ModelConfig) -> str:
    """Check keys, shapes and types in `params_model_*.npz`, reading only the arrays' headers.

    Returns:
        A digest of the content; see `model.checkpoints.deepmind.read_headers`.

    Raises:
        ParametersMissing: the file does not exist.
        ParametersError: as for `load_npz`, except problems in the arrays' data.
    """
    with parameter_errors(path, config.name):
        headers, digest = read_headers(path)
        _check_headers(headers, config, path)
    return digest


def load_npz(
    path: Path, config: ModelConfig, read_file: Callable[[Path], dict[str, np.ndarray]] = read_arrays
) -> dict[str, np.ndarray]:
    """Load and check `params_model_*.npz` for a network; return float32 arrays by key.

    `read_file` is called after the headers are checked; see `model.checkpoints.deepmind.read_arrays`.

    Raises:
        ParametersMissing: the file does not exist.
        ParametersError: the file is not an npz file, is truncated or corrupt; a key is missing or unknown; or
            an array has the wrong shape or type, or contains infinities or NaN.
    """
    check_npz(path, config)
    with parameter_errors(path, config.name):
        return read_file(path)


def load_folder(folder: pathlib.Path, manifest: NetworkManifest) -> dict[str, np.ndarray]:
    """Load and check the weights of a network's folder; see `model.checkpoints.network_folder`.

    Returns:
        float32 arrays by key.

    Raises:
        ParametersMissing: a file does not exist.
        ParametersError: the weights are damaged, or are not those of the manifest's network.
    """
    path = folder / WEIGHTS_FILE
    content = read_weights_file(folder, manifest)
    try:
        tensors = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise ParametersError(f"not a safetensors file ({error})", path) from error
    arrays = {key: tensor.float().numpy() for key, tensor in tensors.items()}
    _check_headers({key: (array.shape, array.dtype) for key, array in arrays.items()}, manifest.config, path)
    return arrays


def _check_headers(headers: ArrayHeaders, config: ModelConfig, path: Path) -> None:
    expected = expected_shapes(config)
    missing = [key for key in expected if key not in headers]
    unknown = [key for key in headers if key not in expected]
    if missing or unknown:
        problems = "; ".join(filter(None, [format_keys("missing", missing), format_keys("unknown", unknown)]))
        raise ParametersError(f"does not contain the parameters of {config.name}: {problems}", path)
    if mistyped := [f"{key} ({dtype})" for key, (_, dtype) in headers.items() if dtype.kind != "f"]:
        raise ParametersError(format_keys("not floating point", mistyped), path)
    misshapen = [
        f"{key} is {headers[key][0]} instead of {shape}"
        for key, shape in expected.items()
        if headers[key][0] != shape
    ]
    if misshapen:
        raise ParametersError(f"does not fit {config.name}: {format_keys('wrong shape', misshapen)}", path)


def build_network(
    config: ModelConfig,
    arrays: Mapping[str, np.ndarray],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    kernels: str | Kernels = "reference",
    plddt_shift: float = 0.0,
) -> AlphaFold:
    """Build a network with checked float32 parameters by key, in evaluation mode and without gradients.

    Trunk's parameters and activations get the dtype; structure module and heads use float32. On the CPU in
    float32 the network shares the arrays' memory. `plddt_shift` is added to the log odds of pLDDT / 100.
    """
    with torch.device("meta"):
        network = AlphaFold(config, kernels, device)
    tensors: dict[str, torch.Tensor] = {}
    state = {}
    for name, _ in network.named_parameters():
        key, block, half = parameter_key(name, config.multimer)
        if key not in tensors:
            key_dtype = dtype if name.startswith("evoformer.") else torch.float32
            tensors[key] = torch.from_numpy(np.ascontiguousarray(arrays[key])).to(device).to(key_dtype)
        value = tensors[key] if block is None else tensors[key][block]
        if half is not None:
            value = value.chunk(2, dim=-1)[half].clone(memory_format=torch.contiguous_format)
        state[name] = value
    network.load_state_dict(state, assign=True)
    network.plddt_shift = plddt_shift
    return network.eval()


def parameter_arrays(network: AlphaFold) -> dict[str, np.ndarray]:
    """Return the parameters of a monomer network by DeepMind's names, float32."""
    blocks: dict[str, list[np.ndarray]] = {}
    stacked = set()
    for name, parameter in network.named_parameters():
        key, block, _ = parameter_key(name)
        blocks.setdefault(key, []).append(parameter.detach().float().cpu().numpy())
        if block is not None:
            stacked.add(key)
    return {key: np.stack(arrays) if key in stacked else arrays[0] for key, arrays in blocks.items()}
