"""Parameters of OpenFold3: its checkpoints, the same tensors as safetensors, and their names in our network.

A checkpoint is a zip file with a pickle of tensors by name, which is read without running code that it may
contain. It lists the diffusion module twice; the copy under `sample_diffusion.` is ignored. Two networks are
known, and are recognised by their tensors: p2 has a LayerNorm in each block of the token transformer,
OpenBind one for all. DeepMind's parameters are read, too (`model.checkpoints.alphafold3`); they have fewer
residue types.
"""

import os
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import safetensors
import safetensors.torch
import torch

from model.alphafold3.config import DEEPMIND, OPENBIND, P2, AlphaFold3Config
from model.alphafold3.network import AlphaFold3
from model.checkpoints.alphafold3 import read_arrays, to_openfold3
from model.checkpoints.deepmind import format_keys
from model.checkpoints.records import is_record_file
from model.checkpoints.tensor_files import write_tensors
from model.errors import ParametersError, ParametersMissing
from msa.base.digests import file_sha256

_DUPLICATE = "sample_diffusion."
_IGNORED = "version_tensor"
_SHARED_NORM = "diffusion_module.diffusion_transformer.layer_norm_z.weight"
_INPUTS = "input_embedder.linear_s.weight"
_REMEDY = "get it from https://huggingface.co/OpenFold/OpenFold3"


def _norms(**theirs: str) -> dict[str, str | None]:
    """Return OpenFold3's name of each parameter of LayerNorms, given theirs of each of our layers."""
    names = (("scale", "weight"), ("offset", "bias"))
    return {f"{layer}.{our}": f"{path}.{their}" for layer, path in theirs.items() for our, their in names}


def _linears(**theirs: str) -> dict[str, str | None]:
    """Return the same of linear layers, of which OpenFold3's have no biases: None means zeros."""
    weights: dict[str, str | None] = {f"{layer}.weights": f"{path}.weight" for layer, path in theirs.items()}
    return weights | {f"{layer}.bias": None for layer in theirs}


# the reused layers
_MULTIPLICATION = _norms(layer_norm_input="layer_norm_in", center_layer_norm="layer_norm_out") | _linears(
    left_projection="linear_a_p", right_projection="linear_b_p", left_gate="linear_a_g",
    right_gate="linear_b_g", output_projection="linear_z", gating_linear="linear_g",
)  # fmt: skip
_ATTENTION = _norms(query_norm="layer_norm") | {
    "pair_bias": "linear_z.weight",
    **{f"attention.{x}": f"mha.linear_{x[0]}.weight" for x in ("query", "key", "value", "gating", "output")},
    "attention.gating_bias": None,
    "attention.output_bias": None,
}
_OUTER_PRODUCT = (
    _norms(layer_norm_input="layer_norm")
    | _linears(left_projection="linear_1", right_projection="linear_2")
    | {"output": "linear_out.weight", "output_bias": "linear_out.bias"}
)
# AlphaFold2's incoming multiplication has the factors the other way round
_SWAPPED = {"linear_a_p.weight": "linear_b_p.weight", "linear_a_g.weight": "linear_b_g.weight"}
_SWAPPED |= {theirs: ours for ours, theirs in _SWAPPED.items()}
_LAYERS: dict[str, dict[str, str | None]] = {
    "tri_mul_out": _MULTIPLICATION,
    "tri_mul_in": {ours: _SWAPPED.get(theirs or "", theirs) for ours, theirs in _MULTIPLICATION.items()},
    "tri_att_start": _ATTENTION,
    "tri_att_end": _ATTENTION,
    "outer_product_mean": _OUTER_PRODUCT,
}
_LAYER_NAME = re.compile(rf"(.*\.(?:{'|'.join(_LAYERS)}))\.(.+)")


class TensorSource(NamedTuple):
    """The origin of a parameter of our network.

    Args:
        name: the tensor of the checkpoint; None if there is none, which means zeros.
        shape: its shape there.
        transposed: whether our parameter is its transpose, with axes split.
    """

    name: str | None
    shape: tuple[int, ...]
    transposed: bool


def source_of(name: str, shape: tuple[int, ...]) -> TensorSource:
    """Return the origin of one of our parameters, given its name and shape."""
    match = _LAYER_NAME.fullmatch(name)
    if match is None:
        return TensorSource(name, shape, False)
    path, leaf = match.groups()
    theirs = _LAYERS[path.rpartition(".")[2]][leaf]
    if theirs is None or len(shape) == 1:
        return TensorSource(theirs and f"{path}.{theirs}", shape, False)
    size = 1
    for axis in shape:
        size *= axis
    inputs = size // shape[-1] if leaf.endswith("output") else shape[0]
    return TensorSource(f"{path}.{theirs}", (size // inputs, inputs), True)


def read_checkpoint(path: Path) -> tuple[AlphaFold3Config, dict[str, torch.Tensor]]:
    """Read a checkpoint of OpenFold3, or the file that `convert_checkpoint` made of it.

    Returns:
        config: the network, recognised by its tensors.
        tensors: float32 tensors by name, for `model.alphafold3.network.AlphaFold3.load`. Most of them are
            read from the file when they are used.

    Raises:
        ParametersMissing: the file does not exist.
        ParametersError: the file is damaged, contains more than tensors, or is of another network: the
            message names tensors that are missing, unknown, of the wrong shape, not floating point, or not
            finite.
    """
    return translate(_read_tensors(path), path)


def translate(
    theirs: Mapping[str, torch.Tensor], path: Path | None = None
) -> tuple[AlphaFold3Config, dict[str, torch.Tensor]]:
    """Return the network of OpenFold3's tensors, without duplicates, and the tensors by our names.

    Raises:
        ParametersError: see `read_checkpoint`; names the path.
    """
    config = recognise(theirs)
    with torch.device("meta"):
        network = AlphaFold3(config, "reference")
    expected = network.state_dict()
    sources = {name: source_of(name, tuple(tensor.shape)) for name, tensor in expected.items()}
    _check(path, config, theirs, sources.values())
    tensors = {}
    for name, source in sources.items():
        if source.name is None:
            tensors[name] = torch.zeros(source.shape)
            continue
        tensor = theirs[source.name].float()
        tensors[name] = tensor.T.reshape(expected[name].shape) if source.transposed else tensor
    return config, tensors


def openfold3_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors by OpenFold3's names and in its shapes, given those by ours; the inverse of `translate`.

    Tensors that OpenFold3's layers do not have are left out; parameters among them are zeros.
    """
    result = {}
    for name, tensor in tensors.items():
        source = source_of(name, tuple(tensor.shape))
        if source.name is not None:
            result[source.name] = tensor.reshape(source.shape[::-1]).T if source.transposed else tensor
    return result


def recognise(names: Mapping[str, torch.Tensor]) -> AlphaFold3Config:
    """Return the network that has these tensors; the numbers of blocks are those that occur."""
    inputs = names.get(_INPUTS)
    is_deepmind = inputs is not None and inputs.shape[-1:] == (DEEPMIND.input_channels,)
    base = DEEPMIND if is_deepmind else OPENBIND if _SHARED_NORM in names else P2

    def blocks(prefix: str, default: int) -> int:
        pattern = re.compile(rf"{re.escape(prefix)}\.blocks\.(\d{{1,4}})\.")
        indices = [int(match[1]) for name in names if (match := pattern.match(name))]
        return max(indices) + 1 if indices else default

    diffusion, atoms = base.diffusion, base.diffusion.atoms
    encoder = "atom_attn_enc.atom_transformer"
    return replace(
        base,
        pairformer_blocks=blocks("pairformer_stack", base.pairformer_blocks),
        template_blocks=blocks("template_embedder.template_pair_stack", base.template_blocks),
        input_atoms=replace(
            base.input_atoms, blocks=blocks(f"input_embedder.{encoder}", base.input_atoms.blocks)
        ),
        msa=replace(base.msa, blocks=blocks("msa_module", base.msa.blocks)),
        diffusion=replace(
            diffusion,
            blocks=blocks("diffusion_module.diffusion_transformer", diffusion.blocks),
            atoms=replace(atoms, blocks=blocks(f"diffusion_module.{encoder}", atoms.blocks)),
        ),
        confidence=replace(
            base.confidence,
            blocks=blocks("aux_heads.pairformer_embedding.pairformer_stack", base.confidence.blocks),
        ),
    )


def convert_checkpoint(source: Path, target: Path) -> AlphaFold3Config:
    """Write the tensors of a checkpoint as safetensors, with OpenFold3's names and without duplicates.

    Returns:
        The network, recognised by its tensors.

    Raises:
        ParametersMissing: see `read_checkpoint`.
        ParametersError: see `read_checkpoint`; nothing is written.
        OSError: the target cannot be written.
    """
    tensors = {name: tensor.contiguous() for name, tensor in _read_tensors(source).items()}
    config, _ = translate(tensors, source)
    write_tensors(target, tensors, {"network": config.name, "source_sha256": file_sha256(source)})
    return config


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read tensors by OpenFold3's names, without duplicates; those of DeepMind's file are renamed."""
    try:
        with path.open("rb") as stream:
            is_zip = stream.read(4) == b"PK\x03\x04"
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ParametersMissing(f"{path}: no such file", _REMEDY) from error
    if not is_zip and is_record_file(path):
        return to_openfold3(read_arrays(path), path)
    try:
        content = _read_zip(path) if is_zip else safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ParametersError(f"neither a checkpoint nor a safetensors file ({error})", path) from error
    tensors = {}
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ParametersError(f"contains more than tensors by name: {str(name)[:80]}", path)
        if not name.startswith(_DUPLICATE) and name != _IGNORED:
            tensors[name] = tensor
    return tensors


def _read_zip(path: Path) -> Mapping:
    """Read the mapping in a checkpoint; its pickle may only contain tensors and plain containers."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ParametersError("its pickle contains more than tensors; it is not loaded", path) from error
    except (RuntimeError, ValueError, EOFError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = error.filename or os.fspath(path)
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ParametersError(f"damaged, or not a checkpoint ({reason:.200})", path) from error
    if not isinstance(content, Mapping):
        raise ParametersError("does not contain tensors by name", path)
    return content


def _check(
    path: Path | None,
    config: AlphaFold3Config,
    tensors: Mapping[str, torch.Tensor],
    sources: Iterable[TensorSource],
) -> None:
    """Compare names, shapes and types of tensors with what a network needs."""
    shapes = {source.name: source.shape for source in sources if source.name is not None}
    problems = {
        "missing": [name for name in shapes if name not in tensors],
        "unknown": [name for name in tensors if name not in shapes],
        "wrong shape": [
            f"{name} is {tuple(tensors[name].shape)} instead of {shape}"
            for name, shape in shapes.items()
            if name in tensors and tuple(tensors[name].shape) != shape
        ],
        "not floating point": [
            f"{name} ({tensor.dtype})" for name, tensor in tensors.items() if not tensor.is_floating_point()
        ],
        "not finite": [
            name
            for name, tensor in tensors.items()
            if tensor.is_floating_point() and not bool(tensor.isfinite().all())
        ],
    }
    described = "; ".join(format_keys(problem, keys) for problem, keys in problems.items() if keys)
    if described:
        raise ParametersError(f"does not contain the parameters of {config.name}: {described}", path)
