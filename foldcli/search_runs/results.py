"""The results of a run of `foldcli search`, of any kind."""

from collections.abc import Sequence
from pathlib import Path

from foldcli.search_runs.settings import SearchRun
from foldcli.search_runs.table import write_table


def write_results(run: SearchRun, out: str, kind: str, columns: Sequence[str]) -> None:
    """Write a table of hits, a folder of alignments, or one alignment on standard output.

    Args:
        run: the run.
        out: path of the table or folder; "-" is standard output.
        kind: "m8", "a3m" or "sto".
        columns: columns of the table.

    Raises:
        Exception: see `table.write_table`, `folder.write_alignments` and `print_alignment`.
    """
    if kind == "m8":
        write_table(run, out, columns)
        return
    # imports the stores of runs, which tables do not need
    from foldcli.search_runs.folder import print_alignment, write_alignments

    if out == "-":
        print_alignment(run, kind)
    else:
        write_alignments(run, Path(out), kind)
