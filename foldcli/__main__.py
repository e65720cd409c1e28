"""`foldcli` and `python -m foldcli`."""

import sys

from foldcli.cli import cli
from foldcli.errors import run_with_exit_codes


def main() -> None:
    """Run the command line; every failure becomes one line on stderr and an exit code."""
    sys.exit(run_with_exit_codes(cli))


if __name__ == "__main__":
    main()
