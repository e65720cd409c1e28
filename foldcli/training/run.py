"""Training runs of `foldcli train`: their options, their start and their end."""

import contextlib
import fcntl
import hashlib
import io
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foldcli.errors import ExitCode, OptionError
from foldcli.logs import logger
from foldcli.params.openfold3 import DEEPMIND_TERMS
from foldcli.paths import cache_dir, check_writable_folder, make_writable_folder
from foldcli.pipeline.network.device import choose_device
from foldcli.process_state import exit_at_once, hide_torch_warnings, on_stop_signals_in_thread
from foldcli.training.settings import AllAtomRunSettings, read_run_settings
from model.alphafold3.config import DEEPMIND
from model.checkpoints.network_folder import read_held_out
from model.dataclass_mapping import flat_values
from model.errors import ConfigError
from model.training.alphafold2.task import ChainTask
from model.training.data.data import FORMAT_VERSION, ChainSet, read_split
from model.training.data.prepare import SOURCES, prepare
from model.training.packaging import package_network
from model.training.runtime.checkpoint import (
    CARRIED_FOLDER,
    check_network,
    read_average,
    read_portable_manifest,
    stored_progress,
)
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import TrainingRunSettings, TrainingSettings
from model.training.runtime.trainer import METRICS, StepReport, Trainer, drop_metrics_after
from msa.base.atomic import atomic_write
from msa.base.digests import file_sha256
from msa.base.json_files import parse_json, read_json

# opens the run of a configuration
OpenRun = Callable[[TrainingProcesses], Trainer[Any]]

# number of steps between two log messages
_LOG_EVERY = 10
# a second SIGINT within this time is taken to be the first one
_SAME_INTERRUPT_SECONDS = 1.0
# longest wait for an update, a validation or a checkpoint before a run ends at once
_SAVE_SECONDS = 10.0
_SETTINGS = "settings.json"
# settings on which no step depends
_WITHOUT_EFFECT = ("workers", "checkpoint_every", "validate_every", "training_data", "licence")
# options without effect on the training of all-atom networks
_OF_CHAINS = ("prepared", "unpack_only", "export", "scores", "workers")
# options that do something else than training
_INSTEAD = ("unpack_only", "export", "package")


@dataclass(frozen=True)
class TrainingOptions:
    """The arguments and options of `foldcli train`, which its help explains."""

    config: Path
    run: Path | None
    data: Path | None
    prepared: Path | None
    unpack_only: bool
    max_seconds: float | None
    max_steps: int | None
    resume: bool
    export: Path | None
    package: Path | None
    scores: tuple[Path, ...]
    device: str
    workers: int | None


def train(options: TrainingOptions) -> int | None:
    """Train a network, or export, package or unpack as the options request.

    Returns:
        The exit code if a signal has stopped the training.

    Raises:
        OptionError: the configuration or an option is wrong.
    """
    if int(os.environ.get("RANK", "0")) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # the first of the processes that torchrun has started tells what all of them do
        logger.setLevel(logging.ERROR)
    given = [_option(name) for name in _INSTEAD if _is_given(options, name)]
    if len(given) > 1:
        raise OptionError(f"{given[0]} excludes {given[1]}.")
    if options.scores and options.package is None:
        raise OptionError("--scores requires --package.")
    try:
        settings = read_run_settings(options.config)
    except ConfigError as error:
        raise OptionError(str(error)) from error
    if isinstance(settings, AllAtomRunSettings):
        for name in _OF_CHAINS:
            if _is_given(options, name):
                raise OptionError(f"{_option(name)} does not apply to all-atom networks.")
        open_run = _all_atom_run(settings, options)
    else:
        open_run = _chain_run(settings, options)
    if open_run is None or options.run is None:
        return None
    return _run(settings.network.name, open_run, options, options.run)


def _is_given(options: TrainingOptions, name: str) -> bool:
    value = getattr(options, name)
    return value is not None and value is not False and value != ()


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _all_atom_run(settings: AllAtomRunSettings, options: TrainingOptions) -> OpenRun | None:
    """Return how to open a run of an all-atom network; None after --package."""
    from features.training.complexes import ComplexSet  # imports the libraries of the extra `allatom`
    from foldcli.training.all_atom import all_atom_trainer, package

    run = options.run
    if run is None:
        return None
    if options.package is not None:
        parameters = package(run, settings, options.package)
        logger.info("%s: network %s, SHA-256 %s", options.package, parameters.name, parameters.sha256)
        return None
    if settings.network.variant == DEEPMIND.variant:
        logger.info("%s", DEEPMIND_TERMS)
    complexes = ComplexSet(_data_folder(options.data, settings.data))
    return lambda processes: all_atom_trainer(settings, complexes, run, processes, options.resume)


def _chain_run(settings: TrainingSettings, options: TrainingOptions) -> OpenRun | None:
    """Return how to open a run of an AlphaFold2 network; None after --export, --package or --unpack-only."""
    run = options.run
    if options.workers is not None:
        settings = replace(settings, workers=options.workers)
    if options.export is not None and run is not None:
        _export(run, options.export)
        return None
    if options.package is not None and run is not None:
        _package(run, settings, options.package, options.scores)
        return None
    folder = _data_folder(options.data, settings.data)
    chains = _prepare(folder, options.prepared)
    if options.unpack_only or run is None:
        return None
    split = read_split(chains, folder)

    def open_run(processes: TrainingProcesses) -> Trainer[Any]:
        def on_compilation(residues: int) -> None:
            logger.info("compiling the network for %d residues, which may take minutes", residues)

        task = ChainTask(settings, chains, split, processes, on_compilation)
        return Trainer(task, run, processes, options.resume)

    return open_run


def _data_folder(data: Path | None, configured: str) -> Path:
    """Return the folder of the training data: --data, else the configuration's."""
    if data is None and not configured:
        raise OptionError("Missing training data: give --data, or `data` in the configuration.")
    return data or Path(configured)


def _run(name: str, open_run: OpenRun, options: TrainingOptions, run: Path) -> int | None:
    """Start or continue a run, and train until its end, a limit or a signal; see `train`."""
    hide_torch_warnings()
    check_writable_folder(run)
    if not options.resume and stored_progress(run).step:
        raise OptionError(f"{run} holds a training run: continue it with --resume, or name another folder.")
    device = choose_device(options.device).partition(":")[0]
    processes = TrainingProcesses.from_environment(device)
    try:
        try:
            trainer = open_run(processes)
        except ConfigError as error:
            raise OptionError(f"{options.config}: {error}") from error
        make_writable_folder(run)
        with _only_process(run) if processes.rank == 0 else contextlib.nullcontext():
            if processes.rank == 0:
                if stored_progress(run).step != trainer.progress.step:
                    raise OptionError(f"{run}: another process has just trained it; start again.")
                data = str(Path(options.data or trainer.settings.data).resolve())
                record_settings(run, trainer.settings, {"data": data, "processes": processes.count})
                if lines := drop_metrics_after(run, step := trainer.progress.step):
                    logger.info("%s: removed %d lines after step %d", run / METRICS, lines, step)
            stop = _StopSignals(trainer)
            on_stop_signals_in_thread(stop)
            logger.info(
                "%s: %.1f million parameters, %d process(es) on %s, step %d of %d",
                name,
                trainer.flat.num_parameters / 1e6,
                processes.count,
                device,
                trainer.progress.step,
                trainer.settings.total_steps,
            )
            _log(trainer.train(max_seconds=options.max_seconds, max_steps=options.max_steps))
    finally:
        processes.close()
    if stop.exit_code is not None:
        logger.info("stopped by a signal; continue with --resume")
    return stop.exit_code


@contextlib.contextmanager
def _only_process(run: Path) -> Iterator[None]:
    """Lock the folder of a run, where the file system has locks.

    Raises:
        OptionError: another process has locked it.
    """
    descriptor = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(f"{run}: another process trains a network in this folder.") from None
        except OSError:  # a file system without locks
            logger.debug("%s: cannot be locked", run)
        yield
    finally:
        os.close(descriptor)


def record_settings(run: Path, settings: TrainingRunSettings, more: dict[str, Any]) -> None:
    """Write RUN/settings.json, and warn of settings that differ from those of the run's earlier steps.

    Args:
        run: folder of the run.
        settings: its settings.
        more: values by name that its steps depend on in addition.
    """
    path, content = run / _SETTINGS, json.dumps(flat_values(settings) | more, default=asdict, indent=1)
    with contextlib.suppress(FileNotFoundError, ValueError):
        earlier, now = read_json(path, dict[str, Any]), parse_json(content)
        changed = [
            f"{key} ({earlier.get(key)}, now {value})" if isinstance(value, str | int | float) else key
            for key, value in now.items()
            if earlier.get(key) != value and key not in _WITHOUT_EFFECT
        ]
        if changed:
            logger.warning("%s: continued with other settings than before: %s", run, ", ".join(changed))
    with atomic_write(path) as stream:
        stream.write(content)


class _StopSignals:
    """The reaction to signals that stop a run.

    Attributes:
        exit_code: exit code of a run that a signal has stopped; None before.
    """

    def __init__(self, trainer: Trainer[Any]) -> None:
        self._trainer = trainer
        self._interrupted: float | None = None
        self.exit_code: int | None = None

    def __call__(self, number: int) -> None:
        """Stop after the current step or, if it is compiling or this is a second Ctrl-C, at once."""
        is_interrupt, now = number == signal.SIGINT, time.monotonic()
        if self.exit_code is None:
            self.exit_code = ExitCode.INTERRUPTED if is_interrupt else ExitCode.TERMINATED
        # torchrun passes on a Ctrl-C that the terminal has already sent
        is_second = self._interrupted is not None and now - self._interrupted > _SAME_INTERRUPT_SECONDS
        if is_second if is_interrupt else self._trainer.task.is_compiling:
            try:
                self._trainer.save(_SAVE_SECONDS)
                logger.info("stopped at once by a signal; continue with --resume")
            finally:
                exit_at_once(self.exit_code)
        self._trainer.request_stop()
        if is_interrupt and self._interrupted is None:
            self._interrupted = now
            logger.info("stopping after this step; Ctrl-C again stops at once")


def _prepare(folder: Path, prepared: Path | None) -> ChainSet:
    """Unpack the training data into a folder named by a hash of its files, unless it exists."""
    if prepared is None:
        files = [folder / name for name in SOURCES if (folder / name).is_file()]
        hashes = [file_sha256(file) for file in files]
        name = hashlib.sha256(repr((FORMAT_VERSION, hashes)).encode()).hexdigest()[:16]
        prepared = cache_dir() / "training" / name
    chains = prepare(folder, prepared)
    logger.debug("%d chains in %s", len(chains.ids), prepared)
    return chains


def _log(reports: Iterator[StepReport]) -> None:
    """Log validations, skipped steps, and every _LOG_EVERY-th step."""
    for report in reports:
        if report.validation:
            for name, scores in report.validation.items():
                text = "  ".join(f"{key} {value:.3f}" for key, value in scores.items())
                logger.info("step %d  %s: %s", report.step, name, text)
        if report.skipped:
            logger.warning("step %d skipped: gradient norm %.3g", report.step, report.gradient_norm)
        if report.step % _LOG_EVERY == 0 or report.step == report.total_steps:
            terms = "  ".join(f"{name} {value:.3f}" for name, value in report.terms.items())
            logger.info(
                "step %d/%d  %s  gradient %.2g  %.1f samples/s  waiting %.1f %%",
                report.step,
                report.total_steps,
                terms,
                report.gradient_norm,
                report.samples_per_second,
                100 * report.waited / report.seconds,
            )


def _export(run: Path, path: Path) -> None:
    """Write the averaged network of a run as a parameter file."""
    _, arrays = read_average(run / CARRIED_FOLDER)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    with atomic_write(path, "wb") as stream:
        stream.write(buffer.getvalue())


def _package(run: Path, settings: TrainingSettings, folder: Path, scores: Sequence[Path]) -> None:
    """Write the averaged network of a run as a folder with a manifest."""
    stored = read_portable_manifest(run / CARRIED_FOLDER)
    check_network(run / CARRIED_FOLDER, stored.config, settings.network)
    manifest = package_network(run / CARRIED_FOLDER, settings, folder, read_held_out(scores))
    logger.info("%s: network %s, SHA-256 %s", folder, manifest.title, manifest.sha256)
