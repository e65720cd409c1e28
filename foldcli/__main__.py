"""The entry point of `foldcli` and `python -m foldcli`."""

import sys

import click

from foldcli.cli import cli
from foldcli.errors import ExitCode, run_with_exit_codes
from foldcli.paths import hiding_file
from foldcli.process_state import (
    exit_at_once,
    exit_on_bus_error,
    keep_bytecode,
    make_cpu_products_reproducible,
    open_closed_streams,
    raise_on_stop_signals,
    set_numba_cache_folder,
    write_utf8,
)

_FOLDCLI_PACKAGES = ("cuda", "features", "model", "msa")


def main() -> None:
    """Run the command line and exit; every failure becomes one line on stderr and an exit code."""
    open_closed_streams()
    if (problem := _hidden_package()) is not None:
        click.echo(f"foldcli: error: {problem}", err=True)
        sys.exit(ExitCode.MISSING)
    write_utf8()
    make_cpu_products_reproducible()
    keep_bytecode()
    set_numba_cache_folder()
    raise_on_stop_signals()
    exit_on_bus_error()
    code = run_with_exit_codes(cli)
    # During a normal exit, signals would change the code, as would an earlier KeyboardInterrupt in an `exec`.
    # It would also stop a thread that is still opening a GPU, and CUDA's libraries would abort the process.
    exit_at_once(code)


def _hidden_package() -> str | None:
    """Return an error message if a file on the import path hides one of foldcli's own packages."""
    # `foldcli doctor` starts without `cuda`, and reports a hidden `cuda` among its other findings
    required = [name for name in _FOLDCLI_PACKAGES if name != "cuda" or sys.argv[1:2] != ["doctor"]]
    for name in required:
        if (file := hiding_file(name)) is not None:
            return (
                f"{file} hides foldcli's own package {name!r}: rename it, or run foldcli without its folder "
                "on the import path (PYTHONPATH, or the working directory under `python -m foldcli`)"
            )
    return None


if __name__ == "__main__":
    main()
