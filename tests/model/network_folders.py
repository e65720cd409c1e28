"""Small networks in folders, for tests."""

import hashlib
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch

from model.config import ModelConfig, MsaConfig, PairConfig, StackConfig, StructureConfig, TemplateConfig
from model.network_folder import WEIGHTS_FILE, InputSizes, NetworkManifest, write_manifest
from model.parameters import random_parameters


def small_network() -> ModelConfig:
    """Return a network with every part and few channels."""
    pair = PairConfig(
        channels=16, multiplication_channels=16, attention_heads=2, attention_channels=8, transition_factor=2
    )
    msa = MsaConfig(
        channels=16, attention_heads=2, attention_channels=8, outer_channels=8, transition_factor=2
    )
    return ModelConfig(
        "small",
        evoformer=StackConfig(2, msa, pair),
        extra_msa=StackConfig(1, replace(msa, global_column_attention=True), pair),
        template=TemplateConfig(1, pair, attention_heads=2, attention_channels=8),
        structure=StructureConfig(channels=16, iterations=2, heads=2),
    )


def write_random_network(folder: Path, config: ModelConfig, seed: int = 0) -> NetworkManifest:
    """Write a network with random parameters; return its manifest."""
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
