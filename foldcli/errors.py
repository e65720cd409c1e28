"""Exit codes, and the one place where exceptions become them.

0 all done; 1 unexpected error; 2 usage; 3 bad input; 4 something needed is missing; 5 some targets failed;
130 interrupted.
"""

import errno
import os
import sys
import traceback
from enum import IntEnum

import click


class ExitCode(IntEnum):
    """What a shell script reads in `$?`."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    BAD_INPUT = 3
    MISSING = 4
    SOME_FAILED = 5
    INTERRUPTED = 130


# what the system says of a path that the user gave and that cannot be used
_WRONG_PATH = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


class ReaderGone(Exception):
    """Raised when whoever read standard output has closed it, as `foldcli … | head` does."""


class SomeTargetsFailed(Exception):
    """Raised at the end of a run in which some targets failed and the others were finished."""


class TargetFailed(Exception):
    """Raised at the end of a run whose one target failed, which has been said already.

    Args:
        code: the exit code of the target's own error.
    """

    def __init__(self, code: ExitCode) -> None:
        self.code = code
        super().__init__(f"the target failed with exit code {int(code)}")


class ServerError(Exception):
    """What a search server answered instead of hits.

    Args:
        reason: in the server's words.
        code: the exit code that the server's own error has.
    """

    def __init__(self, reason: str, code: ExitCode) -> None:
        self.code = code
        super().__init__(reason)


class ServerLost(ServerError):
    """A search server that is gone, or has said that it answers no more: nothing is left to try."""


def _is_named(error: BaseException, *names: str) -> bool:
    """Whether the error's class is one of `names`: by name, so that nothing heavy is imported to ask."""
    return any(f"{c.__module__}.{c.__qualname__}" in names for c in type(error).__mro__)


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code an exception stands for."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return ExitCode.INTERRUPTED
    if isinstance(error, SomeTargetsFailed):
        return ExitCode.SOME_FAILED
    if isinstance(error, TargetFailed | ServerError):
        return error.code
    if isinstance(error, click.UsageError):
        return ExitCode.USAGE
    if _is_named(error, "msa.errors.MissingError", "model.errors.ParametersMissing"):
        return ExitCode.MISSING
    if _is_named(error, "msa.errors.InputError", "model.errors.ParametersError"):
        return ExitCode.BAD_INPUT
    if isinstance(error, _WRONG_PATH):
        return ExitCode.BAD_INPUT
    return ExitCode.UNEXPECTED


def is_bug(error: BaseException) -> bool:
    """Whether the error is none of the user's or the machine's, so that its traceback is worth showing."""
    known = OSError | MemoryError | ServerError
    return exit_code_of(error) is ExitCode.UNEXPECTED and not isinstance(error, known)


def describe(error: BaseException) -> str:
    """One line for the user; never a traceback for a mistake of theirs."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted; run the same command again to continue"
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}"
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC:
            where = error.filename or "the output"
            return f"no space left on the disk while writing {where}; nothing half-written was kept"
        if error.filename is not None:
            return f"{os.fspath(error.filename)}: {(error.strerror or str(error)).lower()}"
    return str(error) or type(error).__name__


def run_with_exit_codes(command: click.Command) -> int:
    """Run a click command to its exit code, writing one line to stderr when it fails."""
    try:
        result = command.main(standalone_mode=False)
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except click.UsageError as error:
        error.show()
        return ExitCode.USAGE
    except ReaderGone:
        # the reader's wish, not a failure; what is still to be flushed goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except click.exceptions.Exit as error:
        return error.exit_code
    except TargetFailed as error:
        return error.code
    except (Exception, KeyboardInterrupt) as error:
        code = exit_code_of(error)
        if is_bug(error):
            traceback.print_exc()
        click.echo(f"foldcli: error: {describe(error)}", err=True)
        return code
