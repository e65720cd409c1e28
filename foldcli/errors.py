"""Exit codes, and the translation of exceptions into them.

0 all done; 1 unexpected error; 2 usage; 3 bad input; 4 something needed is missing; 5 some targets failed;
130 interrupted; 143 terminated.
"""

import errno
import os
import resource
import sys
import traceback
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import click

from foldcli.logs import escape_control_characters, logger


class ExitCode(IntEnum):
    """The exit code of the process, `$?` in a shell script."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    BAD_INPUT = 3
    MISSING = 4
    SOME_FAILED = 5
    INTERRUPTED = 130
    TERMINATED = 143


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# the limits of a process that system errors stand for: the limit, and its description for messages
_LIMITS = {
    errno.EFBIG: (resource.RLIMIT_FSIZE, "a file may have {} bytes (ulimit -f)"),
    errno.EMFILE: (resource.RLIMIT_NOFILE, "a process may open {} (ulimit -n)"),
}
# system errors that come from the machine, and not from the input
_MACHINE_ERRORS = (*_DISK_FULL, *_LIMITS, errno.EROFS, errno.ENFILE)
# errors of the input, settings of a training run included
_BAD_INPUT = (
    "msa.base.errors.InputError",
    "model.errors.ParametersError",
    "model.errors.DataError",
    "model.errors.TrainingDiverged",
)
# system errors about a path that the user gave
_PATH_ERRNOS = (errno.ENAMETOOLONG, errno.ELOOP)
_PATH_ERRORS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)

# the extra that installs each library which most commands do without
_EXTRAS = {"biotite": "allatom", "rdkit": "allatom"} | dict.fromkeys(
    ("python_multipart", "starlette", "uvicorn"), "server"
)


class OptionError(ValueError):
    """The refusal of an option's value, or of options that exclude or need each other."""


class NoCacheFolder(RuntimeError):
    """The lack of a home folder, in which the cache would be, for example of a container's user."""

    def __str__(self) -> str:
        return "no home folder for the cache: set FOLDCLI_CACHE to a folder that you can write to"


class Terminated(BaseException):
    """The arrival of SIGTERM, SIGHUP or SIGUSR1, which schedulers send before they kill a job.

    It is not a subclass of KeyboardInterrupt, which click would replace by an exception of its own.
    """


class StdoutClosed(Exception):
    """The closing of standard output by its reader, as in `foldcli … | head`."""


class SomeTargetsFailed(Exception):
    """The failure of some targets of a run, raised when its other targets are finished."""

    failed: Mapping[str, BaseException] = {}
    results: Sequence[Any] = ()


class IncompleteTarget(SomeTargetsFailed):
    """The failure to relax models of a target or to make its report; it is finished without them."""


class TargetFailed(Exception):
    """The failure, already logged, of the only target of a run; raised at the end of the run."""

    def __init__(self, code: ExitCode) -> None:
        self.code = code
        super().__init__(code)

    def __str__(self) -> str:
        return f"the target failed with exit code {int(self.code)}"


class ServerError(Exception):
    """An error that a search server sent instead of hits."""

    def __init__(self, reason: str, code: ExitCode) -> None:
        self.reason, self.code = reason, code
        super().__init__(reason, code)

    def __str__(self) -> str:
        return self.reason


class ServerLost(ServerError):
    """The loss of the search server, or of the connection to it, so that a retry would not help."""


def _is_named(error: BaseException, *names: str) -> bool:
    """Return True if the error's class or a base class has one of the names.

    The classes are not imported: this module must work if another package hides `msa` or `model`.
    """
    return any(f"{c.__module__}.{c.__qualname__}" in names for c in type(error).__mro__)


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an exception."""
    if isinstance(error, Terminated):
        return ExitCode.TERMINATED
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return ExitCode.INTERRUPTED
    if isinstance(error, SomeTargetsFailed):
        return ExitCode.SOME_FAILED
    if isinstance(error, TargetFailed | ServerError):
        return error.code
    if isinstance(error, OptionError | click.UsageError):
        return ExitCode.USAGE
    if isinstance(error, NoCacheFolder) or _is_named(error, "msa.base.errors.MissingError"):
        return ExitCode.MISSING
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return ExitCode.MISSING
    if _is_named(error, *_BAD_INPUT):
        return ExitCode.BAD_INPUT
    if isinstance(error, OSError) and (error.errno in _MACHINE_ERRORS or _is_unwritable(error)):
        return ExitCode.MISSING
    if isinstance(error, _PATH_ERRORS) or (isinstance(error, OSError) and error.errno in _PATH_ERRNOS):
        return ExitCode.BAD_INPUT
    return ExitCode.UNEXPECTED


def _is_unwritable(error: OSError) -> bool:
    """Return whether access was denied to a folder, or to a file that does not exist yet or can be read."""
    if not isinstance(error, PermissionError):
        return False
    name = error.filename
    # Path.is_file would raise an error in a closed folder
    return not name or not os.path.isfile(name) or os.access(name, os.R_OK)  # noqa: PTH113


def ends_run(error: BaseException) -> bool:
    """Return True if an error of one target would also be the error of the next ones.

    It then ends the run, with one message, and the same command continues it.
    """
    if _is_named(error, "msa.base.errors.UnwritableFolder"):
        return True
    return isinstance(error, OSError) and error.errno in (*_DISK_FULL, errno.EROFS)


def is_bug(error: BaseException) -> bool:
    """Return True if neither the user nor the machine caused the error, so that its traceback is useful."""
    if isinstance(error, OSError | MemoryError | ServerError) or _is_named(error, "model.errors.RelaxError"):
        return False
    return exit_code_of(error) is ExitCode.UNEXPECTED


def interruption(error: BaseException | None) -> BaseException | None:
    """Return the exception of a signal that became another error, as in the cleanup after a wait."""
    while error is not None and not isinstance(error, KeyboardInterrupt | Terminated):
        error = error.__cause__ or error.__context__
    return error


def log_bug(error: BaseException) -> None:
    """Log the traceback of an error if it is a bug; see `is_bug`."""
    if is_bug(error):
        logger.error("%s", "".join(traceback.format_exception(error)).rstrip())


def describe(error: BaseException) -> str:
    """Return one line about an error for the user, without a traceback."""
    if isinstance(error, Terminated):
        return "terminated; run the same command again to continue"
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted; run the same command again to continue"
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}"
    if isinstance(error, OSError):
        return _describe_system_error(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return f"{error.name} is not installed: pip install 'foldcli[{_EXTRAS[error.name]}]'"
    return str(error) or type(error).__name__


def _describe_system_error(error: OSError) -> str:
    if _is_named(error, "msa.base.atomic.DiskFull"):
        return str(error)
    if error.errno in _DISK_FULL:
        file = error.filename or "the output"
        return f"no space left on the disk while writing {file}; no partial file was kept"
    # mkdir says "file exists" of a file where a folder is needed
    is_file = isinstance(error, FileExistsError) and Path(error.filename or "").is_file()
    reason = "not a directory" if is_file else (error.strerror or str(error)).lower()
    if error.errno in _LIMITS:
        limit, meaning = _LIMITS[error.errno]
        reason += f"; {meaning.format(format(resource.getrlimit(limit)[0], ','))}"
    elif error.filename is None:
        return str(error) or type(error).__name__
    return reason if error.filename is None else f"{os.fspath(error.filename)}: {reason}"


def run_with_exit_codes(command: click.Command) -> int:
    """Run a click command, write one line to stderr if it fails, and return the exit code."""
    try:
        result = command.main(standalone_mode=False)
        # not at exit, where an error would be too late for the exit code
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except click.UsageError as error:
        error.show()
        return ExitCode.USAGE
    except (StdoutClosed, BrokenPipeError):
        # the reader wants no more output
        return ExitCode.DONE
    except click.exceptions.Exit as error:
        return error.exit_code
    except TargetFailed as error:
        return error.code
    except (Exception, KeyboardInterrupt, Terminated) as raised:
        # for click, the end of a file is an interruption, even that of a module's truncated bytecode
        failure: BaseException = raised.__cause__ if isinstance(raised.__cause__, EOFError) else raised
        if is_bug(failure) and (signalled := interruption(failure)) is not None:
            logger.debug("an error after an interruption", exc_info=failure)
            failure = signalled
        code = exit_code_of(failure)
        if is_bug(failure):
            traceback.print_exc()
        if logger.handlers:
            logger.error("%s", describe(failure), extra={"fields": {"exit_code": int(code)}})
        else:
            # it came before the logging options were read
            click.echo(escape_control_characters(f"foldcli: error: {describe(failure)}"), err=True)
        return code
