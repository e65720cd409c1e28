"""Quickly started processes of foldcli's commands.

Importing torch and numba takes most of a short command's time. A server process imports them once, and forks
for each command: the command has a process, files and environment of its own, as in a shell, but starts in
milliseconds. Tests of imports, signals, limits and installations start processes themselves.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

# what commands import when they are called
_PRELOADED = (
    "torch", "numba", "Bio.Align", "gemmi", "matplotlib.figure", "safetensors.numpy", "yaml", "zstandard",
    "features.alphafold2.compiled_sampling", "features.alphafold3.samples", "features.cache.cache",
    "features.templates.search", "foldcli.cli", "foldcli.__main__", "foldcli.commands.fold",
    "foldcli.commands.search", "foldcli.databases.build", "foldcli.exports.run",
    "foldcli.inputs.molecules.read", "foldcli.pipeline.runs.cache_run", "foldcli.pipeline.runs.prediction",
    "foldcli.pipeline.runs.run", "foldcli.pipeline.search.searcher",
    "foldcli.report.make", "foldcli.search_runs.start", "foldcli.search_runs.table",
    "model.alphafold2.network", "model.output.files", "msa.cpu.engine", "msa.database.build",
    "msa.search.scoring.kernels", "multiprocessing.spawn",
)  # fmt: skip
_LOCK = Lock()


def run_foldcli(
    arguments: Sequence[object],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    input: str | bytes | None = None,
    text: bool = True,
) -> "subprocess.CompletedProcess[Any]":
    """Run `foldcli ARGUMENTS` in a process of its own, and return its exit code and output.

    Args:
        arguments: converted to strings.
        env: environment of the process; None is that of this one. Variables that libraries read when they are
            imported have no effect.
        cwd: working directory; None is that of this process.
        input: standard input; None is empty.
        text: return text instead of bytes.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, name)) for name in ("stdin", "stdout", "stderr", "code")]
        os.mkfifo(paths[3])
        Path(paths[0]).write_bytes(input.encode() if isinstance(input, str) else input or b"")
        request = {
            "arguments": [str(argument) for argument in arguments],
            "environment": dict(os.environ if env is None else env),
            "folder": str(Path.cwd() if cwd is None else cwd),
            "paths": paths,
        }
        with _LOCK:
            server = _server()
            assert server.stdin is not None
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
        code = int(Path(paths[3]).read_text())
        outputs: list[Any] = [Path(path).read_bytes() for path in paths[1:3]]
    if text:
        # as a pipe in text mode does
        outputs = [output.decode().replace("\r\n", "\n") for output in outputs]
    return subprocess.CompletedProcess(["foldcli", *request["arguments"]], code, *outputs)


def foldcli(
    *arguments: object, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `foldcli ARGUMENTS` as `run_foldcli` does; it must not show a traceback."""
    result = run_foldcli(arguments, env=env, input=stdin)
    assert "Traceback" not in result.stderr
    return result


def command_environment(cache: Path, **variables: str) -> dict[str, str]:
    """Return this process's environment with another cache, so that the user's is not touched."""
    return os.environ | {"FOLDCLI_CACHE": str(cache)} | variables


def best_scores(folder: Path) -> dict[str, Any]:
    """Read the scores of the best model in the result folder of a target."""
    (path,) = folder.glob("*_scores_rank_001_*.json")
    scores: dict[str, Any] = json.loads(path.read_text())
    return scores


@cache
def _server() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-P", __file__],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE, text=True,
    )  # fmt: skip

    def close() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    atexit.register(close)
    return process


def _serve() -> None:
    import importlib

    for name in _PRELOADED:
        importlib.import_module(name)
    from msa.io.fasta_blocks import FastaBlock, parse_block

    # with its first kernel, numba loads what all of them need
    parse_block(FastaBlock("", 1, b">a\nA\n"))
    # the system removes ended processes that wait for commands
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            _wait_for_command(json.loads(line))


def _wait_for_command(request: dict[str, Any]) -> None:
    """Start a command, wait for it and report its exit code; ends the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        _run(request)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    Path(request["paths"][3]).write_text(str(code))
    os._exit(0)


def _run(request: dict[str, Any]) -> None:
    """Become the process of a command; ends the process."""
    import multiprocessing.process
    import traceback

    code: object = 1
    try:
        modes = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
        for number, (path, mode) in enumerate(zip(request["paths"][:3], modes, strict=True)):
            os.dup2(os.open(path, mode, 0o600), number)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        multiprocessing.process.ORIGINAL_DIR = request["folder"]
        from foldcli import __main__

        # processes that the command starts import it as after `python -m foldcli`
        sys.modules["__main__"] = __main__
        sys.argv = [str(__main__.__file__), *request["arguments"]]
        __main__.main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    _serve()
