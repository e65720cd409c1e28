"""The relaxation of models in worker processes, for `fold` and `predict`.

OpenMM is an optional library, so it is imported only in the functions that need it, and so is gemmi, which
runs without relaxation do not need.
"""

import contextlib
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from foldcli.logs import logger
from foldcli.outputs.done import StageCost
from foldcli.outputs.layout import unranked_name
from foldcli.outputs.model_files import ModelResult, relaxed_path, write_result
from foldcli.outputs.target import measured_stage
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.targets.settings import RelaxOptions
from model.errors import RelaxError
from msa.base.atomic import atomic_write
from msa.base.errors import MissingError
from msa.base.hardware import available_cores

if TYPE_CHECKING:
    from model.relax.amber import RelaxSettings

Device = Literal["cpu", "gpu"]

_MAX_WORKERS = 6
# more threads make a relaxation hardly faster
_CORES_PER_WORKER = 4
# seconds in which a GPU has to answer
_PROBE_SECONDS = 60.0


@dataclass(frozen=True)
class RelaxTask:
    """A staged model to relax."""

    target: str
    folder: Path
    result: ModelResult
    settings: "RelaxSettings"


def relax_model(task: RelaxTask) -> StageCost:
    """Relax a staged model: write its result, then the relaxed structure; return the cost.

    A model is relaxed once the structure exists, so that a killed relaxation is repeated.

    Raises:
        RelaxError: the model cannot be relaxed.
    """
    import gemmi  # not needed by runs without relaxation

    # OpenMM is an optional library
    from model.relax.amber import relax

    tag = task.result.tag
    if "pdb" not in task.result.kinds:
        raise RelaxError(f"{task.result.num_chains} chains do not fit the PDB format")
    with measured_stage("relax") as costs:
        relaxed = relax(gemmi.read_structure(str(task.folder / unranked_name("pdb", tag))), task.settings)
        write_result(task.folder, replace(task.result, relaxation=relaxed.summary()))
        with atomic_write(relaxed_path(task.folder, tag)) as stream:
            stream.write(relaxed.pdb())
    for change in relaxed.changes:
        logger.debug("%s: %s: relaxed: %s", task.target, tag, change)
    logger.info("%s: %s relaxed: %s", task.target, tag, relaxed.describe())
    return costs[0]


@dataclass(frozen=True)
class RelaxStage:
    """The workers that relax models.

    Args:
        limit: number of models of a target to relax; None for all.
        pool: the workers; other workers write models, so that writing never waits for relaxations.
    """

    limit: int | None
    pool: WorkerPool
    settings: "RelaxSettings"

    @classmethod
    def start(cls, options: RelaxOptions, num_targets: int) -> "RelaxStage | None":
        """Create the stage; None if no models are to be relaxed."""
        if not options.num_models:
            return None
        cores = available_cores()
        useful_workers = min(_MAX_WORKERS, cores // _CORES_PER_WORKER, num_targets * options.num_models)
        workers = 1 if options.use_gpu else max(1, useful_workers)
        settings = relax_settings(
            device="gpu" if options.use_gpu else "cpu", threads=max(1, cores // workers)
        )
        return cls(options.limit, WorkerPool(workers), settings)


def check_relaxation(options: RelaxOptions) -> None:
    """Check that requested relaxations are possible, before anything is computed.

    Raises:
        MissingError: OpenMM, PDBFixer or the requested GPU is missing.
    """
    if options.num_models:
        relax_settings()
        choose_relax_device("gpu" if options.use_gpu else "cpu")


def relax_settings(
    device: Device = "cpu", threads: int = 1, max_rounds: int | None = None, max_seconds: float | None = None
) -> "RelaxSettings":
    """Return settings of relaxations; None selects the default of a limit.

    Raises:
        MissingError: OpenMM or PDBFixer is missing.
    """
    try:
        # OpenMM is an optional library
        from model.relax.amber import RelaxSettings
    except ImportError as error:
        remedy = "pip install 'foldcli[relax]'"
        raise MissingError(f"relaxation needs OpenMM and PDBFixer: {error}", remedy) from error
    return RelaxSettings(
        max_rounds=RelaxSettings.max_rounds if max_rounds is None else max_rounds,
        max_seconds=RelaxSettings.max_seconds if max_seconds is None else max_seconds,
        device=device,
        threads=threads,
    )


def choose_relax_device(requested: Literal["auto", "cpu", "gpu"]) -> Device:
    """Return the device of relaxations; "auto" is a GPU if OpenMM can use one within a minute, else the CPU.

    A separate process tests the GPU, because a driver that hangs cannot be interrupted, and because forked
    processes could not use a driver that this process has opened.

    Raises:
        MissingError: a GPU was requested, and OpenMM cannot use one.
    """
    if requested == "cpu":
        return "cpu"
    pool = WorkerPool(1)
    try:
        pool.submit(_check_gpu, None).result(timeout=_PROBE_SECONDS)
    except FutureTimeoutError:
        problem = f"OpenMM's GPU did not answer within {_PROBE_SECONDS:.0f} s"
    except (RelaxError, ChildProcessError) as error:
        problem = str(error)
    else:
        return "gpu"
    finally:
        pool.terminate()
        with contextlib.suppress(ChildProcessError):
            pool.close()
    if requested == "gpu":
        raise MissingError(problem, "Relax on the CPU.")
    return "cpu"


def _check_gpu(_: None) -> None:
    """Check that OpenMM can use a GPU."""
    # OpenMM is an optional library
    from model.relax.amber import select_platform

    select_platform("gpu")
