"""Checkpoints in OpenFold3's format, of small files."""

from pathlib import Path

import torch

from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.network import AlphaFold3
from model.checkpoints.openfold3 import source_of

Tensors = dict[str, torch.Tensor]


def fake_tensors(config: AlphaFold3Config) -> Tensors:
    """Return tensors by OpenFold3's names, each with one value of its own, so that their files are small."""
    with torch.device("meta"):
        network = AlphaFold3(config, "reference")
    sources = (source_of(name, tuple(x.shape)) for name, x in network.state_dict().items())
    shapes = {source.name: source.shape for source in sources if source.name}
    return {
        name: torch.tensor(float(index)).expand(shape) for index, (name, shape) in enumerate(shapes.items())
    }


def save(tensors: Tensors, path: Path) -> Path:
    """Write a checkpoint, which lists the diffusion module twice."""
    module = {name: x for name, x in tensors.items() if name.startswith("diffusion_module.")}
    copies = {f"sample_diffusion.{name}": x for name, x in module.items()}
    torch.save(tensors | copies | {"version_tensor": torch.tensor([2.0, 0.0, 0.0])}, path)
    return path
