"""Changes to process-wide state: environment variables, signal handlers, warnings and others.

foldcli passes values as arguments everywhere else. The settings here are read by the operating system or by
libraries while they are imported, so they cannot be passed as arguments.
"""

import contextlib
import ctypes
import io
import json
import logging
import math
import os
import resource
import select
import signal
import sys
import threading
import time
import warnings
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

from foldcli.errors import ExitCode, NoCacheFolder, Terminated
from foldcli.logs import logs_json
from foldcli.paths import cache_dir

# the signals that end a run: of schedulers (SIGUSR1 for Slurm's --signal), and of a terminal that is closed
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

SignalHandler = Callable[[int, FrameType | None], None]

# offset of the address in siginfo_t, on 64-bit Linux
_ADDRESS_OFFSET = 16
_SA_SIGINFO = 4
# until a signal that did not interrupt the main thread is sent again
_REPEAT_SECONDS = 0.5
# in which a signal is the same that was sent again while its handler began
_SAME_SECONDS = 0.1
# run the initialization of a module in C++, which aborts the process at an exception of Python code it calls
_EXTENSION_IMPORTS = (ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__)
# open files of a server; a larger limit would slow programs that close all files
_OPEN_FILES = 2**16
# written to the pipe of signals when a handler runs
_HANDLED = b"\0"

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Variables that limit libraries to one thread, if they are set before numpy is imported."""

_BUS_ERROR_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
# keeps the handler alive, because the system may call it until the process ends
_live_handlers: list[object] = []


class _SignalAction(ctypes.Structure):
    """The arguments of sigaction(2) on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def set_triton_cache_folder() -> Path:
    """Keep Triton's compiled kernels in foldcli's cache, unless the user has set another folder.

    Triton reads the variable when it is imported, so call this first.

    Returns:
        The folder.
    """
    return Path(os.environ.setdefault("TRITON_CACHE_DIR", str(cache_dir() / "kernels" / "triton")))


def set_numba_cache_folder() -> Path:
    """Keep the CPU code that numba compiles in foldcli's cache, unless the user has set another folder.

    numba would keep it next to the modules, where it would remain after `pip uninstall`. It reads the
    variable when it is imported, so call this first. If the folder cannot be written, numba falls back to the
    folders of the modules, and `msa.base.cpu_kernels.jit` to none.

    Returns:
        The folder, which numba creates when needed; /dev/null, which is none, if the user has no home folder.
    """
    if "NUMBA_CACHE_DIR" not in os.environ:
        with contextlib.suppress(NoCacheFolder):
            os.environ["NUMBA_CACHE_DIR"] = str(cache_dir() / "kernels" / "numba")
    return Path(os.environ.get("NUMBA_CACHE_DIR") or os.devnull)


def make_cpu_products_reproducible() -> None:
    """Make small matrix products on a CPU independent of where their inputs are in memory.

    By default, Intel's library selects code by the alignment of its inputs, so the same prediction can differ
    in the last digits from run to run. It reads the variable at its first use, so call this before torch is
    imported. A value that the user has set is kept.
    """
    try:
        with Path("/proc/cpuinfo").open() as lines:
            # those of the first processor; the others have the same
            flags = next((line.split() for line in lines if line.startswith("flags")), [])
    except OSError:
        return
    for instructions, flag in (("AVX512", "avx512bw"), ("AVX2", "avx2")):
        if flag in flags:
            os.environ.setdefault("MKL_CBWR", f"{instructions},STRICT")
            return


def keep_bytecode() -> None:
    """Store bytecode in foldcli's cache if torch is installed without it and its folder is read-only.

    This is common: some installers do not compile, and some containers are read-only. Without stored
    bytecode, every process compiles the modules of torch, numba and others for seconds. Call this before
    they are imported.

    Nothing is stored if the size of files is limited (ulimit -f): Python would leave truncated files.
    """
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        sys.dont_write_bytecode = True
        return
    if sys.pycache_prefix is not None or (torch := find_spec("torch")) is None:
        return
    if not (torch.origin and torch.cached) or Path(torch.cached).exists():
        return
    if sys.dont_write_bytecode or not os.access(Path(torch.origin).parent, os.W_OK):
        with contextlib.suppress(NoCacheFolder):
            sys.pycache_prefix, sys.dont_write_bytecode = str(cache_dir() / "bytecode"), False


def raise_on_stop_signals() -> None:
    """Make SIGTERM, SIGHUP and SIGUSR1 raise Terminated, and SIGINT KeyboardInterrupt.

    SIGINT is handled even if the shell has started the process with SIGINT ignored, as it does for background
    jobs (`&`): a user who sends it wants to end the run. SIGHUP stays ignored under `nohup`.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    on_stop_signals(stop)


def on_stop_signals(handler: SignalHandler) -> None:
    """Call a handler on SIGINT and the signals that end a run, instead of the previous handler.

    A signal is sent again until it interrupts the main thread. Python would lose it if it arrived just before
    that thread waits for a lock, or in a destructor or a callback of a weak reference, as at the end of an
    import. While a class is created in Python 3.11, or an extension module is imported, the handler is not
    called: its exception would become an ordinary error, or abort the process.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    handled: dict[int, float] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if _loses_exceptions(frame):
            return
        os.write(writing, _HANDLED)
        now = time.monotonic()
        is_repeated, handled[number] = now < handled.get(number, -math.inf) + _SAME_SECONDS, now
        if not is_repeated:
            handler(number, frame)

    _handle_stop_signals(handle)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    # a signal of a forked process is not one of this process
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    report = sys.unraisablehook

    def report_or_repeat(lost: "sys.UnraisableHookArgs") -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt | Terminated):
            is_interrupt = issubclass(lost.exc_type, KeyboardInterrupt)
            os.write(writing, bytes([signal.SIGINT if is_interrupt else signal.SIGTERM]))
        else:
            report(lost)

    sys.unraisablehook = report_or_repeat
    # unlike a `Thread`, this one does not change the way in which the process exits
    start_new_thread(_repeat_unhandled, (reading, handle))


def _loses_exceptions(frame: FrameType | None) -> bool:
    """Return True if an exception in a frame would become another error, or abort the process.

    It becomes a RuntimeError in `__set_name__` of Python 3.11.
    """
    while frame is not None:
        if frame.f_code.co_name == "__set_name__" or frame.f_code in _EXTENSION_IMPORTS:
            return True
        frame = frame.f_back
    return False


def _repeat_unhandled(reading: int, handler: SignalHandler) -> None:
    """Send each signal whose number arrives in a pipe again until the handler has run; never returns."""
    unhandled = 0
    while True:
        if unhandled and not select.select([reading], [], [], _REPEAT_SECONDS)[0]:
            if signal.getsignal(unhandled) is handler:
                signal.pthread_kill(threading.main_thread().ident or 0, unhandled)
            unhandled = 0
            continue
        (number,) = os.read(reading, 1)
        if number in (*_HANDLED, signal.SIGINT, *TERMINATION_SIGNALS):
            unhandled = number


def _handle_stop_signals(handler: SignalHandler) -> None:
    """Set the handler of SIGINT and the signals that end a run, but SIGHUP stays ignored under `nohup`."""
    for number in (signal.SIGINT, *TERMINATION_SIGNALS):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def exit_on_bus_error() -> None:
    """End the process with one line when a mapped file was truncated, or its disk cannot be read.

    The system then sends SIGBUS to the thread that reads the missing bytes, which would end the process
    without a message. A Python handler would never run, because the read is repeated until it succeeds.
    """

    def report(number: int, info: int, context: int | None) -> None:
        address = ctypes.c_void_p.from_address(info + _ADDRESS_OFFSET).value or 0
        if (path := _mapped_file(address)) is None:
            # not a mapped file: without the handler, the repeated instruction ends the process as usual
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
            return
        message = f"{path}: truncated or unreadable while it was in use"
        line = f"foldcli: error: {message}"
        if logs_json():
            line = json.dumps({"level": "error", "message": message, "exit_code": int(ExitCode.BAD_INPUT)})
        os.write(2, f"{line}\n".encode())
        os._exit(ExitCode.BAD_INPUT)

    handler = _BUS_ERROR_HANDLER(report)
    _live_handlers.append(handler)
    action = _SignalAction(handler=ctypes.cast(handler, ctypes.c_void_p), flags=_SA_SIGINFO)
    ctypes.CDLL(None).sigaction(signal.SIGBUS, ctypes.byref(action), None)


def _mapped_file(address: int) -> str | None:
    """Return the path of the file that is mapped at an address of this process."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        start, _, end = line.split(" ", 1)[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            path = line.split(maxsplit=5)[5:]
            return path[0] if path and path[0].startswith("/") else None
    return None


def on_stop_signals_in_thread(handler: Callable[[int], None]) -> None:
    """Call a handler in a thread of its own on SIGINT and the signals that end a run, until the process ends.

    A handler in the main thread would have to wait while that compiles, or while it waits for a GPU.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _handle_stop_signals(lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def work() -> None:
        while True:
            for number in os.read(reading, 1):
                if number in (signal.SIGINT, *TERMINATION_SIGNALS):
                    handler(number)

    threading.Thread(target=work, name="stop signals", daemon=True).start()


def share_gpu_memory() -> None:
    """Let tensors of all sizes share a GPU's memory, unless the user decides; before torch is imported."""
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")


def hide_torch_warnings() -> None:
    """Hide torch's own warnings, which are about code and not about what the user does."""
    warnings.filterwarnings("ignore", module=r"torch\.")
    logging.getLogger("torch").setLevel(logging.ERROR)


def open_closed_streams() -> None:
    """Open closed standard streams: input is then empty, and writing data fails."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r"))


def write_utf8() -> None:
    """Let standard output be UTF-8 whatever the locale, because it carries ids, and data for other programs.

    Bytes of file names that are not UTF-8 are written unchanged.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def allow_open_files() -> None:
    """Raise this process's limit of open files, each connection being one, as far as the system lets users.

    The usual limit of 1,024 is for programs that call select(2).
    """
    limit, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _OPEN_FILES if maximum == resource.RLIM_INFINITY else min(maximum, _OPEN_FILES)
    if limit != resource.RLIM_INFINITY and limit < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, maximum))


def exit_at_once(code: int) -> NoReturn:
    """End this process at once, without the cleanup of Python and of a GPU, which takes 0.25 s."""
    logging.shutdown()
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def private_new_files() -> Iterator[None]:
    """Create files that only this user can read and write (mode 0600) while the context is open.

    Setting the mode after the file was created would leave it open to others for a moment.
    """
    previous = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(previous)
