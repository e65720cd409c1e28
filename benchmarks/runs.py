"""Parts that benchmarks of whole runs share: random parameters and random alignments."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from random_parameters import random_parameters

from foldcli.params.manifest import ParameterManifest
from model.alphafold2.modules.config import ModelConfig, model_config

LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)
GAP = ord("-")


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


def random_alignment(rng: np.random.Generator, name: str, residues: int, rows: int) -> bytes:
    """Return an alignment whose rows share between a fifth and all of their residues with the query."""
    query = rng.choice(LETTERS, residues)
    letters = rng.choice(LETTERS, (rows, residues))
    kept = rng.random((rows, residues)) < rng.uniform(0.2, 1.0, (rows, 1))
    letters = np.where(kept, query, letters)
    letters[rng.random((rows, residues)) < 0.1] = GAP
    lines = [f">{name}\n".encode() + query.tobytes()]
    lines += [f">row{number}\n".encode() + row.tobytes() for number, row in enumerate(letters)]
    return b"\n".join(lines) + b"\n"
