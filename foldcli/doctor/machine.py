"""Checks of what is around foldcli: packages' namespaces, cores, memory, folders and disks."""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from foldcli.doctor.outcome import Context, Outcome, Status
from foldcli.options.common import available_cores
from foldcli.params.parameters import DEMO, download_instructions, installed_parameters
from foldcli.paths import cache_dir

_GIB = 2**30
_LITTLE_DISK = 5 * _GIB


def check_namespace(context: Context) -> Outcome:
    """`cuda` must be shared by NVIDIA's packages and ours: a package of that name hides both."""
    spec = importlib.util.find_spec("cuda")
    if spec is not None and spec.origin is not None:
        return Outcome(
            "cuda namespace",
            Status.BROKEN,
            f"{spec.origin} hides NVIDIA's packages and foldcli's",
            "Remove or rename it, or take its folder from PYTHONPATH; if pip installed it, uninstall it.",
        )
    if importlib.util.find_spec("cuda.alignment") is None or importlib.util.find_spec("cuda.fused") is None:
        return Outcome(
            "cuda namespace", Status.BROKEN, "foldcli's own part of it is missing", "Install foldcli again."
        )
    if importlib.util.find_spec("cuda.bindings") is None:
        # without a GPU nobody misses them
        status = Status.OK if context.device == "cpu" else context.without_gpu
        remedy = "" if status is Status.OK else "pip install 'foldcli[cuda]'"
        return Outcome("cuda namespace", status, "NVIDIA's cuda.bindings are not installed", remedy)
    return Outcome("cuda namespace", Status.OK, "shared by NVIDIA's packages and foldcli's")


def check_machine(context: Context) -> Outcome:
    """Cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    found = f"{available_cores()} cores for this process, {memory:.0f} GiB memory"
    return Outcome("machine", Status.OK, found)


def check_cache(context: Context) -> Outcome:
    """The folder for databases, features and kernels; it is not made here."""
    return _writable("cache folder", cache_dir(), "Set FOLDCLI_CACHE to a folder that you can write.")


def check_temporary(context: Context) -> Outcome:
    """The folder for temporary files."""
    name, remedy = "temporary files", "Set TMPDIR to a folder that you can write."
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        return Outcome(name, Status.BROKEN, (error.strerror or str(error)).lower(), remedy)
    return _writable(name, folder, remedy)


def check_parameters(context: Context) -> list[Outcome]:
    """The parameter files that predictions would take, by keys and shapes."""
    from foldcli.params.verify import problem_of

    name, get = "parameters", f"foldcli params fetch --dest {context.params}"
    if str(context.params) == DEMO:
        return [Outcome(name, Status.OK, "none needed: the untrained demonstration network")]
    found = installed_parameters(context.params)
    if not found:
        without = download_instructions(context.params)
        return [Outcome(name, Status.WARNING, f"none in {context.params}", without)]
    outcomes = []
    for source in found:
        assert source.file is not None
        if problem := problem_of(source.file, source.config_name):
            outcomes.append(Outcome(name, Status.BROKEN, f"{source.file}: {problem}", f"{get} --overwrite"))
    if outcomes:
        return outcomes
    what = f"{', '.join(source.config_name for source in found)} in {context.params}"
    if missing := {1, 2, 3, 4, 5} - {source.number for source in found}:
        numbers = ", ".join(map(str, sorted(missing)))
        there = ",".join(sorted({str(source.number) for source in found}))
        remedy = f"{get}, or predict with --models {there}."
        return [Outcome(name, Status.WARNING, f"{what}; none for model {numbers}", remedy)]
    return [Outcome(name, Status.OK, what)]


def _writable(name: str, folder: Path, remedy: str) -> Outcome:
    """Whether a folder can be written, or made, and what its disk has free."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    to_be_made = "" if there == folder else ", made when needed"
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        return Outcome(name, Status.BROKEN, f"{folder} cannot be written ({there}: {said})", remedy)
    free = shutil.disk_usage(there).free
    found = f"{folder}{to_be_made}, {free / _GIB:.1f} GiB free"
    if free < _LITTLE_DISK:
        return Outcome(name, Status.WARNING, found, f"Databases and features may not fit. {remedy}")
    return Outcome(name, Status.OK, found)
