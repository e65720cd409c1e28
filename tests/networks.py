"""Tiny networks with random parameters: their architectures, and folders of them for `--params`."""

import functools
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from benchmarks.random_parameters import random_parameters
from foldcli.params.manifest import ParameterManifest
from model.alphafold2.modules.config import (
    ModelConfig,
    MsaConfig,
    MultimerConfig,
    PairConfig,
    StackConfig,
    StructureConfig,
    TemplateConfig,
    model_config,
)
from model.alphafold3.config import OPENBIND, AlphaFold3Config, AtomConfig, ConfidenceConfig, MsaModuleConfig
from model.checkpoints.network_folder import WEIGHTS_FILE, InputSizes, NetworkManifest, write_manifest


def tiny_network(name: str = "tiny") -> ModelConfig:
    """Return the architecture of an untrained monomer network with every part and few channels.

    The GPU kernels support these numbers of channels.
    """
    pair = PairConfig(
        channels=16, multiplication_channels=24, attention_heads=2, attention_channels=8, transition_factor=2
    )
    msa = MsaConfig(
        channels=32, attention_heads=2, attention_channels=8, outer_channels=8, transition_factor=2
    )
    return ModelConfig(
        name,
        evoformer=StackConfig(2, msa, pair),
        extra_msa=StackConfig(1, replace(msa, channels=8, global_column_attention=True), pair),
        template=TemplateConfig(1, replace(pair, channels=8), attention_heads=2, attention_channels=8),
        structure=StructureConfig(
            channels=24, iterations=3, heads=3, scalar_channels=8, query_points=2, value_points=3
        ),
        trained=False,
    )


def tiny_multimer(name: str = "tiny multimer") -> ModelConfig:
    """Return the architecture of a tiny untrained AlphaFold-Multimer network."""
    tiny = tiny_network(name)
    assert tiny.template is not None
    return replace(
        tiny,
        evoformer=replace(tiny.evoformer, outer_product_first=True),
        extra_msa=replace(tiny.extra_msa, outer_product_first=True),
        template=replace(tiny.template, multiplication_first=True),
        structure=replace(tiny.structure, position_scale=20.0, separate_projections=True),
        multimer=MultimerConfig(msa_rows=4, extra_rows=6),
    )


def tiny_all_atom() -> AlphaFold3Config:
    """Return the architecture of an all-atom network of a few thousand parameters."""
    pair = PairConfig(16, 16, 2, 8, 2)
    atoms = AtomConfig(channels=16, pair_channels=8, heads=2, blocks=1)
    return replace(
        OPENBIND,
        name="tiny",
        single_channels=32,
        single_heads=2,
        single_transition_factor=2,
        pair=pair,
        pairformer_blocks=1,
        template_pair=pair,
        template_blocks=1,
        input_atoms=atoms,
        msa=MsaModuleConfig(
            channels=8, blocks=1, heads=2, head_channels=4, outer_channels=4, transition_factor=2
        ),
        diffusion=replace(OPENBIND.diffusion, channels=32, heads=2, blocks=2, noise_channels=16, atoms=atoms),
        confidence=ConfidenceConfig(blocks=1),
    )


def tiny_version(name: str) -> ModelConfig:
    """Return the architecture of a published network, by name, with few blocks and channels, untrained."""
    published = model_config(name)
    if published.multimer is not None:
        return replace(tiny_multimer(name), multimer=published.multimer)
    tiny = tiny_network(name)
    return replace(
        tiny,
        template=None if published.template is None else tiny.template,
        predicted_aligned_error=published.predicted_aligned_error,
    )


def write_parameters(folder: Path, *networks: ModelConfig) -> None:
    """Write random parameters of networks into files with the names of published networks.

    The folder's parameters.json describes the architectures that are not the published ones.

    Args:
        folder: folder to create.
        networks: architectures; their names are those of published networks.
    """
    folder.mkdir(parents=True)
    for config in networks:
        number = int(config.name.split("_")[1])
        np.savez(folder / f"params_{config.name}.npz", **random_parameters(config, number))
    other = {f"params_{c.name}.npz": c for c in networks if c != model_config(c.name)}
    if other:
        ParameterManifest(architectures=other).write(folder)


@functools.cache
def _tiny_folder() -> "tempfile.TemporaryDirectory[str]":
    """Create the folder of `tiny_parameters`, which lasts as long as the process."""
    folder = tempfile.TemporaryDirectory(prefix="tiny-networks-")
    kinds = ("ptm", "multimer_v3")
    names = [f"model_{number}_{kind}" for kind in kinds for number in range(1, 6)]
    write_parameters(Path(folder.name, "params"), *map(tiny_version, names))
    return folder


def tiny_parameters() -> str:
    """Return a folder for `--params` with ten tiny untrained networks, five of them for complexes."""
    return str(Path(_tiny_folder().name, "params"))


def write_packaged_network(folder: Path, config: ModelConfig, seed: int = 0) -> NetworkManifest:
    """Write a random network as `foldcli train --package` writes one; return its manifest."""
    folder.mkdir(parents=True)
    arrays = random_parameters(config, seed)
    content = safetensors.torch.save({key: torch.from_numpy(x).bfloat16() for key, x in arrays.items()})
    (folder / WEIGHTS_FILE).write_bytes(content)
    manifest = NetworkManifest(
        name=config.name,
        version="2026.11.23-10",
        licence="CC BY 4.0",
        training_data="random numbers",
        samples=640,
        steps=10,
        sha256=hashlib.sha256(content).hexdigest(),
        config=config,
        inputs=InputSizes(16, 24, 2, False, 0.15, resample=False, num_recycles=1, residues=64),
        side_chains=False,
    )
    write_manifest(folder, manifest)
    return manifest


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute with one thread, which is fastest for small tensors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
