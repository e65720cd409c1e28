"""Signals about mapped files and to stop, and environment variables."""

import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from foldcli.process_state import (
    keep_bytecode,
    make_cpu_products_reproducible,
    set_numba_cache_folder,
    share_gpu_memory,
)

_READ_TRUNCATED = """
import mmap, os, sys, threading
from foldcli import logs
from foldcli.process_state import exit_on_bus_error

exit_on_bus_error()
path = sys.argv[1]
with open(path, "wb+") as stream:
    stream.write(bytes(1 << 16))
    stream.flush()
    mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
if "json" in sys.argv:
    logs.configure(log_json=True)
os.truncate(path, 0)
if "thread" in sys.argv:
    import hashlib  # which reads without the interpreter lock

    thread = threading.Thread(target=lambda: hashlib.sha256(mapping))
    thread.start()
    thread.join()
mapping[1 << 15]
"""


@pytest.mark.parametrize("options", [[], ["thread", "json"]])
def test_truncated_mapped_file_ends_in_one_line(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "with space"
    result = subprocess.run(
        [sys.executable, "-c", _READ_TRUNCATED, path, *options], capture_output=True, text=True
    )
    assert result.returncode == 3
    message = f"{path}: truncated or unreadable while it was in use"
    if options:
        assert f'"message": "{message}"' in result.stderr
    else:
        assert result.stderr == f"foldcli: error: {message}\n"


def test_other_bus_errors_end_the_process_as_before() -> None:
    code = "import os, signal, foldcli.process_state as p; p.exit_on_bus_error(); os.kill(os.getpid(), 7)"
    script = f"{code}; os.kill(os.getpid(), 7)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (-signal.SIGBUS, "")


def test_products_on_a_cpu_are_reproducible_unless_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MKL_CBWR", raising=False)
    make_cpu_products_reproducible()
    flags = Path("/proc/cpuinfo").read_text().split()
    expected = "AVX512,STRICT" if "avx512bw" in flags else "AVX2,STRICT" if "avx2" in flags else None
    assert os.environ.get("MKL_CBWR") == expected
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    make_cpu_products_reproducible()
    assert os.environ["MKL_CBWR"] == "COMPATIBLE"


_LOST_SIGNAL = """
import os, signal, sys, time
from foldcli.errors import Terminated
from foldcli.process_state import raise_on_stop_signals

class Stopped:
    def __del__(self):
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass

{set_up}
Stopped()
try:
    time.sleep(30)
except (KeyboardInterrupt, Terminated) as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_of_schedulers_and_terminals_end_a_command(number: signal.Signals) -> None:
    code = (
        "import click, os, signal, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # these tests may run under nohup
        "import foldcli.__main__ as main\n"
        "@click.command()\n"
        "def wait():\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    time.sleep(30)\n"
        "main.cli = wait\n"
        "main.main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert result.returncode == 143
    assert result.stderr == "foldcli: error: terminated; run the same command again to continue\n"


def test_interrupt_of_compiled_text_ends_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import click, signal\n"
        "import foldcli.__main__ as main\n"
        "@click.command()\n"
        "def execute():\n"
        "    exec('signal.raise_signal(signal.SIGINT)')\n"
        "main.cli = execute\n"
        "main.main()\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    result = subprocess.run(
        [sys.executable, "-m", "program"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert result.returncode == 130
    # click ends the line of a terminal
    assert result.stderr == "\nfoldcli: error: interrupted; run the same command again to continue\n"


def test_hangup_is_ignored_under_nohup() -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from foldcli.process_state import on_stop_signals, raise_on_stop_signals\n"
        "raise_on_stop_signals()\n"
        "on_stop_signals(lambda number, frame: os._exit(1))\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("set_up", "number", "expected"),
    [
        ("raise_on_stop_signals()", signal.SIGINT, "KeyboardInterrupt"),
        ("raise_on_stop_signals()", signal.SIGTERM, "Terminated"),
    ],
)
def test_signals_are_not_lost_in_destructors(set_up: str, number: int, expected: str) -> None:
    code = _LOST_SIGNAL.format(number=int(number), set_up=set_up)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (result.stdout, result.stderr) == (f"{expected}\n", "")


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")]
)
def test_signals_while_a_class_is_created_are_no_errors_of_the_class(number: int, expected: str) -> None:
    code = f"""
import signal, time
from foldcli.errors import Terminated
from foldcli.process_state import raise_on_stop_signals

class Attribute:
    def __set_name__(self, owner, name):
        signal.raise_signal({int(number)})

raise_on_stop_signals()
try:
    class Owner:
        attribute = Attribute()
    time.sleep(30)
except (KeyboardInterrupt, Terminated) as error:
    print(type(error).__name__)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (result.stdout, result.stderr) == (f"{expected}\n", "")


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")]
)
def test_signals_while_an_extension_is_imported_do_not_abort(number: int, expected: str) -> None:
    code = f"""
import enum, signal, time
from foldcli.errors import Terminated
from foldcli.process_state import raise_on_stop_signals

create = enum.EnumType.__call__

def create_after_signal(*arguments, **options):
    signal.raise_signal({int(number)})
    return create(*arguments, **options)

raise_on_stop_signals()
enum.EnumType.__call__ = create_after_signal
try:
    import gemmi  # whose C++ part creates enums
    enum.EnumType.__call__ = create
    time.sleep(30)
except (KeyboardInterrupt, Terminated) as error:
    print(type(error).__name__)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (result.stdout, result.stderr) == (f"{expected}\n", "")


_SIGNAL_WHILE_WAITING = """
import signal, threading, time
from foldcli.errors import Terminated
from foldcli.process_state import on_stop_signals, raise_on_stop_signals

number, calls, held = {number}, [], threading.Lock()
raise_on_stop_signals()
held.acquire()

def receive():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), number)

# to the main thread, it would be as if the signal had come just before it began to wait
threading.Thread(target=receive).start()
try:
    held.acquire()
except (KeyboardInterrupt, Terminated) as error:
    print(type(error).__name__)
on_stop_signals(lambda *_: calls.append(number))
receive()
time.sleep(1.5)
print(calls)
"""


def test_signal_that_is_sent_again_while_it_is_handled_is_the_same() -> None:
    code = """
import signal, time
from foldcli.process_state import on_stop_signals
calls = []
on_stop_signals(lambda *_: calls.append(0))
for pause in (0, 0.3, 0):
    signal.raise_signal(signal.SIGINT)
    time.sleep(pause)
print(len(calls))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (result.stdout, result.stderr) == ("2\n", "")


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")]
)
def test_signals_end_a_wait_that_they_do_not_interrupt(number: signal.Signals, expected: str) -> None:
    code = _SIGNAL_WHILE_WAITING.format(number=int(number))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    # each is handled once
    assert (result.stdout, result.stderr) == (f"{expected}\n[{int(number)}]\n", "")


def test_gpu_memory_is_shared_by_sizes_unless_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "PYTORCH_CUDA_ALLOC_CONF"
    for value, expected in (("", "expandable_segments:True"), ("max_split_size_mb:64",) * 2):
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
        share_gpu_memory()
        assert os.environ[name] == expected


def test_limit_of_open_files_is_raised() -> None:
    script = """
import resource
from foldcli.process_state import allow_open_files

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))
allow_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "(512, 512)\n"


def test_compiled_cpu_code_is_kept_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # set before deleted, so that the variable is restored
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    assert set_numba_cache_folder() == tmp_path / "kernels/numba"
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "kernels/numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/of/the/user")
    assert set_numba_cache_folder() == Path("/of/the/user")


def test_commands_start_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBA_CACHE_DIR", "FOLDCLI_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    set_numba_cache_folder()
    assert "NUMBA_CACHE_DIR" not in os.environ
    # as if torch had been installed without bytecode
    torch = types.SimpleNamespace(origin=__file__, cached=__file__ + "c")
    monkeypatch.setattr("foldcli.process_state.find_spec", lambda name: torch)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    keep_bytecode()
    assert sys.pycache_prefix is None
