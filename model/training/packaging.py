"""The network of a training run as a folder that predictions read; see `model.checkpoints.network_folder`."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch

from model.checkpoints.alphafold2 import expected_shapes
from model.checkpoints.network_folder import (
    WEIGHTS_FILE,
    HeldOutScores,
    InputSizes,
    NetworkManifest,
    write_manifest,
)
from model.training.runtime.checkpoint import read_average
from model.training.runtime.settings import Phase, TrainingSettings
from msa.base.atomic import replaced_file


def package_network(
    checkpoint: Path, settings: TrainingSettings, folder: Path, scores: HeldOutScores | None = None
) -> NetworkManifest:
    """Write the averaged network of a portable checkpoint, in bfloat16, and its manifest; return the latter.

    A PAE head that no phase has trained is left out. The folder is created if it does not exist. `scores` are
    results on held-out chains; the manifest states the inputs that they were measured with.

    Raises:
        DataError: a part of the checkpoint is missing.
        OSError: a file cannot be read or written.
    """
    stored, arrays = read_average(checkpoint)
    progress, config = stored.progress, stored.config
    phases = trained_phases(settings, progress.step)
    if config.predicted_aligned_error and not any(phase.losses.predicted_aligned_error for phase in phases):
        config = replace(config, predicted_aligned_error=False)
        arrays = {key: arrays[key] for key in expected_shapes(config)}
    content = safetensors.torch.save(
        {key: torch.from_numpy(arrays[key]).bfloat16() for key in sorted(arrays)}
    )
    manifest = NetworkManifest(
        name=config.name,
        version=f"{time.strftime('%Y.%m.%d', time.gmtime())}-{progress.step}",
        licence=settings.licence,
        training_data=settings.training_data,
        samples=progress.samples,
        steps=progress.step,
        sha256=hashlib.sha256(content).hexdigest(),
        config=config,
        inputs=(scores and scores.inputs) or _training_inputs(settings, phases),
        side_chains=any(phase.losses.side_chain for phase in phases),
        held_out=() if scores is None else scores.cases,
        regular_bonds=None if scores is None else scores.regular_bonds,
        plddt_shift=0.0 if scores is None else scores.plddt_shift,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with replaced_file(folder / WEIGHTS_FILE) as path:
        path.write_bytes(content)
    write_manifest(folder, manifest)
    return manifest


def _training_inputs(settings: TrainingSettings, phases: Sequence[Phase]) -> InputSizes:
    """Return the inputs that a network was trained with."""
    sampling = settings.sampling
    return InputSizes(
        msa_rows=sampling.msa_rows,
        extra_rows=sampling.extra_rows,
        templates=sampling.templates,
        template_side_chains=sampling.template_side_chains,
        masked_fraction=sampling.masked_fraction,
        # a training sample has the same rows and masks in all passes
        resample=False,
        num_recycles=settings.max_recycles,
        residues=max((phase.crop for phase in phases), default=0),
    )


def trained_phases(settings: TrainingSettings, step: int) -> list[Phase]:
    """Return the phases of which steps were done."""
    phases = []
    for phase in settings.phases:
        if step > 0 and phase.steps > 0:
            phases.append(phase)
        step -= phase.steps
    return phases
