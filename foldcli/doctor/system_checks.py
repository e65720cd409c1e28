"""Checks of the installation and the machine: versions, the `cuda` namespace, folders and GPUs.

This module imports no library, not even numpy: any of them may be what is broken.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import tempfile
import tomllib
from pathlib import Path

from foldcli.doctor.result import CheckContext, CheckResult, CheckStatus, describe_briefly
from foldcli.paths import cache_dir, hiding_file
from foldcli.report.viewer import PACKAGE, load_viewer
from msa.base.hardware import available_cores

_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# modules that are not named like their package, by the package's normalized name
_MODULES = {
    "biopython": "Bio",
    "biotite": "biotite.structure",
    "numba-cuda": "numba.cuda",
    "pyyaml": "yaml",
    "rdkit": "rdkit.Chem",
}
# the extra with the libraries of all-atom networks, which only their predictions need
_ALL_ATOM = "allatom"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BOUND = re.compile(r"(>=|<)\s*([0-9][0-9.]*)")

_GIB = 2**30
_LOW_DISK_BYTES = 5 * _GIB
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


def package_ranges(extra: str | None = None) -> dict[str, str]:
    """Return the required versions, such as ">=2.11,<2.14", by package: those of an extra, or without extras.

    They are read from pyproject.toml in a checkout, else from the installed metadata. Build tools write names
    differently there (PyYAML, pyyaml), so names are normalized as package indexes do (PEP 503).
    """
    if _PYPROJECT.is_file():
        project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
        lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    else:
        lines = _required_by_metadata(extra)
    names = [(_NAME.match(line), line) for line in lines]
    return {
        _normalized(match.group()): _lower_bound_first(line[match.end() :]) for match, line in names if match
    }


def _required_by_metadata(extra: str | None) -> list[str]:
    """Return the requirements of the installed package, without markers: of an extra, or without extras."""
    required = [line.partition(";") for line in importlib.metadata.requires("foldcli") or []]
    marker = f"extra=={extra}" if extra else ""
    return [line.strip() for line, _, found in required if re.sub(r"[\s'\"]", "", found) == marker]


def all_atom_libraries() -> list[str]:
    """Return the names of the packages that only all-atom networks need."""
    return [*package_ranges(_ALL_ATOM)]


def _normalized(name: str) -> str:
    """Return a package's name in lower case, with "-" for each run of "-", "_" and "."."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_range() -> str:
    """Return the required versions of Python, such as ">=3.11,<3.14"."""
    if _PYPROJECT.is_file():
        required = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["requires-python"]
    else:
        required = importlib.metadata.metadata("foldcli")["Requires-Python"]
    return _lower_bound_first(str(required))


def _lower_bound_first(bounds: str) -> str:
    # installed metadata lists the bounds in another order than pyproject.toml
    return ",".join(sorted(bounds.strip().split(","), reverse=True))


def install_command(name: str) -> str:
    """Return the command that installs a suitable version of a package."""
    if name in all_atom_libraries():
        return f"pip install 'foldcli[{_ALL_ATOM}]'"
    return f"pip install --force-reinstall '{name}{package_ranges()[name]}'"


def check_python() -> CheckResult:
    """Check the interpreter's version."""
    version, required = platform.python_version(), python_range()
    status = _version_status(version, required)
    remedy = "" if status is CheckStatus.OK else f"Use Python {required}."
    return CheckResult("Python", status, _version_message(version, status, required), remedy)


def check_package(name: str) -> CheckResult:
    """Check a package's version, and import it.

    Raises:
        BaseException: anything that the import raises.
    """
    required = package_ranges()[name]
    install = install_command(name)
    if name == PACKAGE:
        return _check_viewer(install)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return CheckResult(name, CheckStatus.BROKEN, "not installed", install)
    importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
    status = _version_status(version, required)
    remedy = "" if status is CheckStatus.OK else install
    return CheckResult(name, status, _version_message(version, status, required), remedy)


def check_all_atom_library(name: str) -> CheckResult:
    """Check a package that only all-atom networks need; none is not a failure."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        finding = f"not installed, and only all-atom networks need it: {install_command(name)}"
        return CheckResult(name, CheckStatus.OK, finding)
    required = package_ranges(_ALL_ATOM)[name]
    try:
        importlib.import_module(_MODULES.get(name, name))
    except Exception as error:  # anything that a library raises
        problem = describe_briefly(error)
    else:
        status = _version_status(version, required)
        problem = "" if status is CheckStatus.OK else _version_message(version, status, required)
    if not problem:
        return CheckResult(name, CheckStatus.OK, version)
    finding = f"{problem}; only all-atom networks need it"
    return CheckResult(name, CheckStatus.WARNING, finding, install_command(name))


def _check_viewer(install: str) -> CheckResult:
    """Check the package with the viewer of reports, which is never imported."""
    viewer = load_viewer()
    if viewer.missing:
        finding = "reports have no cartoon: " + viewer.missing
        return CheckResult(PACKAGE, CheckStatus.WARNING, finding, install)
    return CheckResult(PACKAGE, CheckStatus.OK, f"Mol* {viewer.version}")


def _version_status(version: str, required: str) -> CheckStatus:
    """Return BROKEN for a version that is too old, and WARNING for one that is newer than those tested."""
    numbers = _version_numbers(version)
    if required.startswith("=="):
        release = _release(required.removeprefix("==").removesuffix(".*"))
        return CheckStatus.OK if _release(version)[: len(release)] == release else CheckStatus.WARNING
    for bound, text in _BOUND.findall(required):
        if bound == ">=" and numbers < _version_numbers(text):
            return CheckStatus.BROKEN
        if bound == "<" and numbers >= _version_numbers(text):
            return CheckStatus.WARNING
    return CheckStatus.OK


def _version_message(version: str, status: CheckStatus, required: str) -> str:
    return version if status is CheckStatus.OK else f"{version}, and foldcli requires {required}"


def _version_numbers(version: str) -> tuple[int, ...]:
    """Return (2, 13, 0, 0) for "2.13.0+cpu"; suffixes such as that of a release candidate are ignored."""
    numbers = _release(version)
    # pad, since 2.14 and 2.14.0 are the same version
    return numbers + (0,) * (4 - len(numbers))


def _release(version: str) -> tuple[int, ...]:
    """Return (2, 13, 0) for "2.13.0+cpu"."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def check_namespace(context: CheckContext) -> CheckResult:
    """Check that no other `cuda` package hides the namespace shared by NVIDIA's packages and foldcli's."""
    name = "cuda namespace"
    if (file := hiding_file("cuda")) is not None:
        return CheckResult(
            name,
            CheckStatus.BROKEN,
            f"{file} hides NVIDIA's packages and foldcli's",
            "Remove or rename it, or take its folder off PYTHONPATH; if pip installed it, uninstall it.",
        )
    if importlib.util.find_spec("cuda.alignment") is None or importlib.util.find_spec("cuda.fused") is None:
        finding = "foldcli's own part of it is missing"
        return CheckResult(name, CheckStatus.BROKEN, finding, "Install foldcli again.")
    if importlib.util.find_spec("cuda.bindings") is None:
        # only GPUs need them
        status = CheckStatus.OK if context.device == "cpu" else context.status_without_gpu
        remedy = "" if status is CheckStatus.OK else "pip install 'foldcli[cuda]'"
        return CheckResult(name, status, "NVIDIA's cuda.bindings are not installed", remedy)
    return CheckResult(name, CheckStatus.OK, "shared by NVIDIA's packages and foldcli's")


def check_machine(context: CheckContext) -> CheckResult:
    """Report cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    finding = f"{available_cores()} cores for this process, {memory:.0f} GiB memory"
    return CheckResult("machine", CheckStatus.OK, finding)


def check_cache(context: CheckContext) -> CheckResult:
    """Check the folder for databases, features and kernels, without creating it."""
    return _check_folder("cache folder", cache_dir(), "Set FOLDCLI_CACHE to a folder that you can write to.")


def check_temporary(context: CheckContext) -> CheckResult:
    """Check the folder for temporary files."""
    name, remedy = "temporary files", "Set TMPDIR to a folder that you can write to."
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        return CheckResult(name, CheckStatus.BROKEN, (error.strerror or str(error)).lower(), remedy)
    return _check_folder(name, folder, remedy)


def _check_folder(name: str, folder: Path, remedy: str) -> CheckResult:
    """Check that a folder can be written to or created, and that its disk has free space."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    note = "" if existing == folder else ", created when needed"
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        finding = f"{folder} cannot be written to ({existing}: {reason})"
        return CheckResult(name, CheckStatus.BROKEN, finding, remedy)
    free = shutil.disk_usage(existing).free
    finding = f"{folder}{note}, {free / _GIB:.1f} GiB free"
    if free < _LOW_DISK_BYTES:
        return CheckResult(
            name, CheckStatus.WARNING, finding, f"Databases and features may not fit. {remedy}"
        )
    return CheckResult(name, CheckStatus.OK, finding)


def check_gpus(context: CheckContext) -> list[CheckResult]:
    """Check driver, toolkit, device and memory through the functions that the search uses."""
    if context.device == "cpu":
        return [CheckResult("GPU", CheckStatus.OK, "not checked: --device cpu")]
    if not context.uses_gpu():
        return [CheckResult("GPU", CheckStatus.OK, "no NVIDIA GPU: search and network run on the CPU")]
    return [_driver_version(), *(_check_search_gpu(number, context) for number in context.gpus)]


def _driver_version() -> CheckResult:
    """Read the driver's own version, which its CUDA library does not report."""
    try:
        text = _DRIVER_FILE.read_text()
    except OSError:
        return CheckResult("NVIDIA driver", CheckStatus.OK, f"version unknown: no {_DRIVER_FILE}")
    match = re.search(r"\d{3,}\.\d+(\.\d+)?", text)
    return CheckResult("NVIDIA driver", CheckStatus.OK, match.group() if match else text.strip())


def _check_search_gpu(number: int, context: CheckContext) -> CheckResult:
    # imports the package `cuda`, which another one may hide
    from msa.gpu.device.devices import GpuUnavailable, find_gpu

    name = f"GPU {number} for the search"
    try:
        gpu = find_gpu(number)
    except GpuUnavailable as error:
        return CheckResult(name, context.status_without_gpu, error.reason, error.remedy)
    capability, driver, toolkit = (
        f"{major}.{minor}" for major, minor in (gpu.capability, gpu.driver, gpu.toolkit)
    )
    return CheckResult(
        name,
        CheckStatus.OK,
        f"{gpu.name}, compute capability {capability}, {gpu.free_bytes / _GIB:.1f} of "
        f"{gpu.total_bytes / _GIB:.1f} GiB free, driver for CUDA {driver}, toolkit {toolkit}",
    )
