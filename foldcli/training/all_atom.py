"""A training run of an all-atom network, from the complexes of a folder."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import safetensors.torch
import torch

from features.training.complexes import ComplexSet
from features.training.labels import MoleculeTable
from foldcli.params.openfold3 import (
    OPENFOLD3,
    SUFFIX,
    TRAINED,
    AllAtomParameters,
    find_parameters,
    openfold3_folder,
    write_manifest,
)
from foldcli.training.settings import AllAtomRunSettings
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.network import AlphaFold3
from model.checkpoints.openfold3 import openfold3_tensors, translate
from model.errors import DataError
from model.layers.kernels import best_kernels
from model.training.alphafold3.initialization import copy_trained, initialize
from model.training.alphafold3.permutation import Crop, Experiment, Molecules
from model.training.alphafold3.trainer import AllAtomTrainer, TrainerSample
from model.training.runtime.checkpoint import FULL_NAME, Progress, load_full
from model.training.runtime.parameters import FlatParameters
from model.training.runtime.processes import TrainingProcesses
from model.training.trainer import StepReport, append_metrics
from msa.base.atomic import replaced_file
from msa.base.digests import file_sha256


class ComplexSamples:
    """The samples of a run on a device; a thread makes the next one while the network computes.

    Args:
        processes: the processes that train together, which take the samples in turn.

    Attributes:
        seconds: time for which the network has waited for samples.
    """

    def __init__(
        self, complexes: ComplexSet, settings: AllAtomRunSettings, processes: TrainingProcesses
    ) -> None:
        self._complexes, self._settings, self._processes = complexes, settings, processes
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[int, Future[TrainerSample]] | None = None
        self.seconds = 0.0

    def __call__(self, number: int) -> TrainerSample:
        """Return the sample of a number."""
        begin = time.monotonic()
        if self._next is None or self._next[0] != number:
            self._next = number, self._thread.submit(self._make, number)
        sample = self._next[1].result()
        following = number + self._processes.count
        self._next = following, self._thread.submit(self._make, following)
        self.seconds += time.monotonic() - begin
        return sample

    def _make(self, number: int) -> TrainerSample:
        settings, device = self._settings, self._processes.device
        drawn = self._complexes.draw(settings.seed, number, settings.crop, settings.crops)
        symmetries = {key: torch.as_tensor(orders) for key, orders in drawn.crop.symmetries.items()}
        return TrainerSample(
            AlphaFold3Inputs.from_arrays(drawn.features, device).for_network(settings.network),
            Crop(_molecules(drawn.crop), symmetries),
            Experiment(
                _molecules(drawn.whole.molecules),
                torch.as_tensor(drawn.whole.positions),
                torch.as_tensor(drawn.whole.resolved),
            ),
        )


def _molecules(table: MoleculeTable) -> Molecules:
    columns = {name: x for name, x in vars(table).items() if name != "symmetries"}
    return Molecules(**{name: torch.as_tensor(x) for name, x in columns.items()})


class AllAtomRun:
    """A training run, with the interface of `model.training.trainer.Trainer`.

    Args:
        resume: continue from the checkpoint in the run's folder, if there is one.
    """

    is_compiling = False

    def __init__(
        self,
        settings: AllAtomRunSettings,
        complexes: ComplexSet,
        run: Path,
        processes: TrainingProcesses,
        resume: bool = False,
    ) -> None:
        self.settings, self.run, self.processes = settings, run, processes
        kernels = best_kernels(processes.device)
        self.network = network = AlphaFold3(settings.network, kernels, processes.device)
        is_stored = resume and (run / FULL_NAME).exists()
        if settings.initial_network and not is_stored:
            copy_trained(network, _initial_file(settings.initial_network))
        else:
            initialize(network, settings.seed)
        self._samples = ComplexSamples(complexes, settings, processes)
        self._held_out: ComplexSamples | None = None
        if settings.validation:
            self._held_out = ComplexSamples(ComplexSet(Path(settings.validation)), settings, processes)
        if processes.device.type == "cuda":
            torch.cuda.set_device(processes.device)
        network = network.to(processes.device)
        self._trainer = AllAtomTrainer(network, self._samples, settings, processes)
        self.flat = self._trainer.flat
        if is_stored:
            self._trainer.load(run)
        self._stop = False

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._trainer.progress

    def request_stop(self) -> None:
        """Stop after the current step; signal handlers may call it."""
        self._stop = True

    def save_before_exit(self) -> None:
        """Leave the last checkpoint as it is; the steps after it are lost."""

    def train(self, max_seconds: float | None = None, max_steps: int | None = None) -> Iterator[StepReport]:
        """Train until the last step, a limit or a request to stop; write checkpoints.

        Args:
            max_seconds: stop after the first step that ends this long after the call.
            max_steps: stop after this many steps of this call.

        Yields:
            A report after each step.

        Raises:
            TrainingDiverged: too many consecutive steps were skipped.
        """
        begin, first = time.monotonic(), self.progress.step
        every = self.settings.checkpoint_every
        agreed = False
        while self.progress.step < self.settings.steps and not agreed:
            report, agreed = self._step()
            self._write({"kind": "step", **asdict(report)})
            if self._held_out is not None and report.step % self.settings.validate_every == 0:
                scores = self._trainer.validate(self._held_out, self.settings.validation_samples)
                report = replace(report, validation={"held_out": scores})
                self._write({"kind": "validation", "step": report.step, "held_out": scores})
            if max_seconds is not None and time.monotonic() - begin > max_seconds:
                self._stop = True
            if max_steps is not None and self.progress.step - first >= max_steps:
                self._stop = agreed = True
            yield report
            # a process alone needs no votes, which are counted in the next step
            agreed |= self._stop and self.processes.count == 1
            if every and report.step % every == 0 and not agreed:
                self._trainer.save(self.run)
        self._trainer.save(self.run)

    def _write(self, entry: dict[str, object]) -> None:
        if self.processes.rank == 0:
            append_metrics(self.run, entry)

    def _step(self) -> tuple[StepReport, bool]:
        """Make a step; return its report, and whether a process had requested a stop before it."""
        begin, waited = time.monotonic(), self._samples.seconds
        done = self._trainer.step(self._stop)
        seconds = time.monotonic() - begin
        report = StepReport(
            step=done.step,
            total_steps=self.settings.steps,
            terms=done.terms,
            gradient_norm=done.gradient_norm,
            skipped=done.skipped,
            learning_rate=done.learning_rate,
            seconds=seconds,
            waited=self._samples.seconds - waited,
            samples_per_second=self.settings.batch / seconds,
            recycles=None,
        )
        return report, done.stop_requested


def package(run: Path, settings: AllAtomRunSettings, folder: Path) -> AllAtomParameters:
    """Write the averaged network of a run as a folder of parameters that predictions read.

    Raises:
        DataError: there is no checkpoint, or it belongs to another network.
        ParametersError: the network has other sizes than OpenFold3's, so that predictions cannot read it.
    """
    if not (run / FULL_NAME).exists():
        raise DataError(f"{run / FULL_NAME}: no such checkpoint")
    network = AlphaFold3(settings.network, "reference")
    flat = FlatParameters(network, torch.device("cpu"))
    load_full(run, flat, {}, settings.network)
    flat.values.copy_(flat.average)
    tensors = openfold3_tensors(network.state_dict())
    config, _ = translate(tensors, run / FULL_NAME)
    name = settings.network.name
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}{SUFFIX}"
    content = safetensors.torch.save({key: x.contiguous() for key, x in tensors.items()})
    with replaced_file(target) as path:
        path.write_bytes(content)
    result = AllAtomParameters(
        name, config.variant, target, TRAINED, bytes=target.stat().st_size, sha256=file_sha256(target)
    )
    write_manifest(result)
    return result


def _initial_file(name: str) -> Path:
    """Return the file of the parameters that a run starts from; see `find_parameters`."""
    return find_parameters(openfold3_folder() if name == OPENFOLD3 else Path(name)).file
