"""Fixtures for all tests, and processes for tests that need other environment variables."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from foldcli.process_state import make_cpu_products_reproducible, set_numba_cache_folder

ROOT = Path(__file__).resolve().parents[1]
# no test may fail because the machine is busy, or only now and then (--hypothesis-profile random: new inputs)
settings.register_profile("foldcli", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("random", deadline=None)
settings.load_profile("foldcli")
# as commands do; before any test imports torch or numba
make_cpu_products_reproducible()
set_numba_cache_folder()
# waiting threads sleep: several processes share the cores, and by default each would spin on them
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# environment of processes that simulate a GPU
SIMULATOR_VARIABLES = {
    "NUMBA_ENABLE_CUDASIM": "1",
    "PYTHONPATH": f"{ROOT / 'tests/simulator_startup'}{os.pathsep}{ROOT}",
}


def simulate_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that a test starts simulate their GPUs."""
    for name, value in SIMULATOR_VARIABLES.items():
        monkeypatch.setenv(name, value)


class PytestProcess:
    """A process that runs single tests with environment variables of its own; see pytest_process.py.

    If it ends, one test fails with its last words, and another process is started.
    """

    def __init__(self, **variables: str) -> None:
        self._variables = variables
        self._start()

    def _start(self) -> None:
        self._stderr = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "tests/pytest_process.py"],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | self._variables,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )

    def run(self, node_id: str) -> None:
        """Run a test, or all cases of a test function, and fail or skip like it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        answer = ""
        # it may have ended after the test before
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(node_id) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            self._stderr.seek(0)
            words = self._stderr.read()
            self._start()
            pytest.fail(f"the process of the test has ended: exit status {status}\n{words}", pytrace=False)
        status, output = json.loads(answer)
        if status == 0 and " passed" not in output and " skipped" in output:
            pytest.skip("skipped in its process")
        if status != 0 or " passed" not in output:
            pytest.fail(output, pytrace=False)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# files with the longest tests, which run first, so that no process is left with one of them at the end
LONGEST = ("test_interruptions.py", "test_tutorial.py", "test_warmup.py")
SIMULATOR = pytest.StashKey[PytestProcess]()


def pytest_configure(config: pytest.Config) -> None:
    """Deliver SIGINT to the commands that tests start, even if this process was started in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers",
        "simulator(or_gpu=False): runs in a process with numba's simulator, or, if allowed, on a GPU",
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run more tests at once than there are cores: many of them wait for processes that they start."""
    cores = len(os.sched_getaffinity(0))
    return cores + (cores + 1) // 2


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the simulator process."""
    if SIMULATOR in config.stash:
        config.stash[SIMULATOR].close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that run in the simulator or on a GPU as `gpu` tests on a machine with an NVIDIA GPU."""
    marker = item.get_closest_marker("simulator")
    if marker is not None and marker.kwargs.get("or_gpu") and Path("/dev/nvidiactl").exists():
        item.add_marker("gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests marked `simulator` in the simulator process."""
    marker = pyfuncitem.get_closest_marker("simulator")
    if marker is None or os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        return None
    if marker.kwargs.get("or_gpu"):
        from numba import cuda

        if cuda.is_available():
            return None
    stash = pyfuncitem.config.stash
    if SIMULATOR not in stash:
        stash[SIMULATOR] = PytestProcess(**SIMULATOR_VARIABLES)
    stash[SIMULATOR].run(pyfuncitem.nodeid)
    return True


@pytest.fixture(autouse=True)
def messages_reach_pytest() -> Iterator[None]:
    """Let foldcli's messages propagate again after a test that ran a command, once each for caplog."""
    yield
    logging.getLogger("foldcli").propagate = True


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of large real data next to the checkout; skip the test if it is missing."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared next to the checkout")
    return folder


def _build(hook: str, source: Path, out: Path) -> Path:
    """Call a hook of the build backend in `source`, without network access, and return the file it wrote."""
    code = f"import sys; from hatchling import build; build.{hook}(sys.argv[1])"
    result = subprocess.run([sys.executable, "-c", code, out], cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (file,) = out.iterdir()
    return file


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution of this checkout and return its path."""
    pytest.importorskip("hatchling")
    return _build("build_sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution alone and return its path."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return _build("build_wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment variables of a shell with a new virtual environment that contains the wheel.

    The dependencies are those of this interpreter, so nothing is downloaded.
    """
    venv = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return environment | {
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(venv),
        "FOLDCLI_CACHE": str(venv.parent / "cache"),
    }
