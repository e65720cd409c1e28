"""Checkpoints of a training run.

A full checkpoint holds parameters, their average and both moments of Adam in float32, 16 bytes per parameter.
A run continues from it bit for bit on the same kind of device.

A portable checkpoint moves a run between machines, in files under 16 MiB with 3.03 bytes per parameter: the
average in bfloat16, from which the final network is exported, and the difference between the parameters and
the average in 8 bits per element, with one scale per 64 elements. It lacks Adam's moments: after a restart
they start from zero, and the learning rate rises again over some steps.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.checkpoints.alphafold2 import parameter_arrays
from model.checkpoints.tensor_files import write_tensors
from model.dataclass_mapping import flat_values, from_mapping
from model.errors import ConfigError, DataError
from model.training.runtime.parameters import MOMENTS, FlatParameters
from model.training.runtime.settings import Architecture
from msa.base.atomic import atomic_write, remove_temporary_files, replaced_file
from msa.base.json_files import read_json

FULL_NAME = "checkpoint.safetensors"
# subfolder of a run for its portable checkpoint
CARRIED_FOLDER = "carried"
MANIFEST = "manifest.json"
MAX_PART_BYTES = 15 * 2**20
SCALE_BLOCK = 64
# beginning of the names of tensors that are not trained
_BUFFER = "buffer."


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Args:
        step: optimiser steps done.
        samples: training samples used.
        seconds: time spent in training, over all sessions.
        moments_from: step at which Adam's moments last started from zero.
        norms: norms of the last gradients, with which `GradientGuard` compares the next one.
        skipped: number of steps that were skipped in a row.
    """

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    moments_from: int = 0
    norms: tuple[float, ...] = ()
    skipped: int = 0


# SHA-256 of each file or, in older checkpoints, their number
Parts = int | tuple[str, ...]


@dataclass(frozen=True)
class PortableParts:
    """The files of a portable checkpoint."""

    average: Parts
    offset: Parts


@dataclass(frozen=True)
class PortableManifest:
    """The manifest of a portable checkpoint."""

    config: ModelConfig
    progress: Progress
    parts: PortableParts


def save(
    run: Path,
    flat: FlatParameters,
    moments: Mapping[str, torch.Tensor],
    config: Architecture,
    progress: Progress,
) -> None:
    """Write a full checkpoint and, of an AlphaFold2 network, a portable one, to the run's folder."""
    run.mkdir(parents=True, exist_ok=True)
    tensors = {"values": flat.values, "average": flat.average, **{name: moments[name] for name in MOMENTS}}
    packed = {name: flat.pack(tensor).cpu() for name, tensor in tensors.items()}
    packed |= {_BUFFER + name: tensor.cpu() for name, tensor in flat.buffers.items()}
    metadata = {"config": json.dumps(asdict(config)), "progress": json.dumps(asdict(progress))}
    write_tensors(run / FULL_NAME, packed, metadata)
    if isinstance(config, ModelConfig):
        save_portable_checkpoint(run / CARRIED_FOLDER, flat, config, progress)


def load(
    run: Path, flat: FlatParameters, moments: Mapping[str, torch.Tensor], config: Architecture
) -> Progress:
    """Read a run's full checkpoint, else its portable one, into the buffers; without both, change nothing.

    A full checkpoint without `moments` is read without those.

    Raises:
        DataError: it is damaged, or belongs to another network.
    """
    if not (run / FULL_NAME).exists():
        portable = run / CARRIED_FOLDER
        has_one = (portable / MANIFEST).exists()
        return load_portable_checkpoint(portable, flat, config) if has_one else Progress()
    with _open_full(run) as stream:
        metadata = stream.metadata()
        _check_config(run / FULL_NAME, metadata["config"], config)
        flat.unpack(stream.get_tensor("values"), flat.values)
        flat.unpack(stream.get_tensor("average"), flat.average)
        for name, moment in moments.items():
            flat.unpack(stream.get_tensor(name), moment)
        for name, buffer in flat.buffers.items():
            buffer.copy_(stream.get_tensor(_BUFFER + name))
    return from_mapping(Progress, json.loads(metadata["progress"]))


@contextlib.contextmanager
def _open_full(run: Path) -> Iterator[Any]:
    """Open the full checkpoint of a run; raises DataError if it is damaged."""
    path = run / FULL_NAME
    try:
        with safe_open(path, "pt") as stream:
            yield stream
    except SafetensorError as error:
        raise DataError(f"{path}: damaged checkpoint ({error})") from error


def save_portable_checkpoint(
    folder: Path, flat: FlatParameters, config: ModelConfig, progress: Progress
) -> None:
    """Write a portable checkpoint: parts `average-I-SHA256` and `offset-I-SHA256`, then a manifest.

    The folder holds the older checkpoint until the manifest is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    average = flat.pack(flat.average).to(torch.bfloat16).cpu()
    offset = flat.pack(flat.values).cpu() - average.float()
    codes, scales = _quantize(offset)
    average_parts = _save_parts(folder, "average", average)
    offset_parts = _save_parts(folder, "offset", codes, scales)
    parts = PortableParts(average_parts, offset_parts)
    manifest = asdict(PortableManifest(config, progress, parts))
    with replaced_file(folder / MANIFEST) as path:
        path.write_text(json.dumps(manifest, indent=1))
    remove_temporary_files(folder)
    kept = {*_part_names("average", average_parts), *_part_names("offset", offset_parts)}
    for old in folder.glob("*.safetensors"):
        if old.name not in kept:
            old.unlink()


def load_portable_checkpoint(folder: Path, flat: FlatParameters, config: Architecture) -> Progress:
    """Read a portable checkpoint into the buffers; without `offset-*`, training continues from the average.

    Raises:
        DataError: a part is missing or damaged, or it belongs to another network.
    """
    manifest = read_portable_manifest(folder)
    check_network(folder, manifest.config, config)
    average = _load_parts(folder, "average", manifest.parts.average, flat)["values"].float()
    flat.unpack(average, flat.average)
    values = average
    if any(folder.glob("offset-*.safetensors")):
        parts = _load_parts(folder, "offset", manifest.parts.offset, flat)
        values = average + _dequantize(parts["values"], parts["scales"])
    flat.unpack(values, flat.values)
    return replace(manifest.progress, moments_from=manifest.progress.step)


def read_portable_manifest(folder: Path) -> PortableManifest:
    """Read the manifest of a portable checkpoint.

    Raises:
        DataError: it is damaged.
    """
    path = folder / MANIFEST
    try:
        return from_mapping(PortableManifest, read_json(path))
    except (ValueError, ConfigError) as error:
        raise DataError(f"{path}: damaged checkpoint ({error})") from None


def stored_progress(run: Path) -> Progress:
    """Return the progress of a full checkpoint, else that of a portable one, else the start of a run.

    Raises:
        DataError: the checkpoint is damaged.
    """
    if (run / FULL_NAME).exists():
        with _open_full(run) as stream:
            return from_mapping(Progress, json.loads(stream.metadata()["progress"]))
    portable = run / CARRIED_FOLDER
    return read_portable_manifest(portable).progress if (portable / MANIFEST).exists() else Progress()


def read_average(folder: Path) -> tuple[PortableManifest, dict[str, np.ndarray]]:
    """Read the manifest of a portable checkpoint, and the averaged parameters by DeepMind's names, float32.

    Both are of one checkpoint: if a training run replaces it meanwhile, the new one is read.

    Raises:
        DataError: a part is missing or damaged.
    """
    manifest = read_portable_manifest(folder)
    while True:
        network = AlphaFold(manifest.config)
        flat = FlatParameters(network, torch.device("cpu"))
        try:
            values = _load_parts(folder, "average", manifest.parts.average, flat)["values"]
        except DataError:
            previous, manifest = manifest, read_portable_manifest(folder)
            if manifest == previous:
                raise
        else:
            flat.unpack(values, flat.values)
            return manifest, parameter_arrays(network)


def _check_config(path: Path, stored: str, config: Architecture) -> None:
    try:
        check_network(path, from_mapping(type(config), json.loads(stored)), config)
    except ConfigError:
        raise DataError(f"{path}: holds a network of another family than the configuration") from None


def check_network(path: Path, stored: Architecture, config: Architecture) -> None:
    """Raise DataError, with the first setting that differs, if a checkpoint holds another network."""
    first, second = flat_values(stored), flat_values(config)
    for key in first | second:
        if first.get(key) != second.get(key):
            values = f"{key} is {first.get(key)}, in the configuration {second.get(key)}"
            raise DataError(f"{path}: holds another network than the configuration: {values}")


def _quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes [n] int8 and scales [n / 64] float16 of x [n]."""
    blocks = torch.nn.functional.pad(x, (0, -len(x) % SCALE_BLOCK)).view(-1, SCALE_BLOCK)
    # rounded up by half a unit of float16 at most, so that no code exceeds 127
    scales = (blocks.abs().amax(dim=1) / 127.0 * 1.001).clip(min=1e-7).half()
    codes = (blocks / scales.float()[:, None]).round().clip(-127, 127).to(torch.int8)
    return codes.flatten()[: len(x)], scales


def _dequantize(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the float32 values [n] of codes and scales; see `_quantize`."""
    return codes.float() * scales.float().repeat_interleave(SCALE_BLOCK)[: len(codes)]


def _save_parts(
    folder: Path, name: str, values: torch.Tensor, scales: torch.Tensor | None = None
) -> tuple[str, ...]:
    """Write a vector, with its scales, in files of bounded size; return their SHA-256."""
    per_part = MAX_PART_BYTES // values.element_size() // SCALE_BLOCK * SCALE_BLOCK
    digests: list[str] = []
    for start in range(0, len(values), per_part):
        tensors = {"values": values[start : start + per_part].clone()}
        if scales is not None:
            tensors["scales"] = scales[start // SCALE_BLOCK : -(-(start + per_part) // SCALE_BLOCK)].clone()
        content = safetensors.torch.save(tensors)
        digests.append(hashlib.sha256(content).hexdigest())
        with atomic_write(folder / _part_names(name, tuple(digests))[-1], "wb") as stream:
            stream.write(content)
    return tuple(digests)


def _part_names(name: str, parts: Parts) -> list[str]:
    """Return the names of the files of a vector; those of older checkpoints have no digest."""
    if isinstance(parts, int):
        return [f"{name}-{index}.safetensors" for index in range(parts)]
    return [f"{name}-{index}-{digest[:16]}.safetensors" for index, digest in enumerate(parts)]


def _load_parts(folder: Path, name: str, parts: Parts, flat: FlatParameters) -> dict[str, torch.Tensor]:
    """Read a vector of all parameters, with its scales; see `_save_parts`."""
    tensors = []
    for index, file in enumerate(_part_names(name, parts)):
        path = folder / file
        try:
            content = path.read_bytes()
            if not isinstance(parts, int) and hashlib.sha256(content).hexdigest() != parts[index]:
                raise DataError(f"{path}: damaged checkpoint (another SHA-256 than in {MANIFEST})")
            tensors.append(safetensors.torch.load(content))
        except FileNotFoundError:
            raise DataError(f"{path}: missing part of a portable checkpoint") from None
        except SafetensorError as error:
            raise DataError(f"{path}: damaged checkpoint ({error})") from error
    values = {key: torch.cat([part[key] for part in tensors]) for key in tensors[0]}
    if len(values["values"]) != flat.num_parameters:
        raise DataError(f"{folder}: its parts {name}-* are of different checkpoints")
    return values
