"""Options of a search and of the alignment made of its hits, and the settings they stand for."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from foldcli.options.common import Command, together

if TYPE_CHECKING:
    from msa.search.alignment_filter import AlignmentFilter
    from msa.search.search import SearchSettings

_hit_options = together(
    click.option(
        "-e", "--evalue", type=click.FloatRange(0), default=1e-3, show_default=True, help="Largest E-value."
    ),
    click.option(
        "--max-seqs",
        type=click.IntRange(1),
        default=300,
        show_default=True,
        help="Targets that pass from the gapless filter to the alignment.",
    ),
    click.option(
        "--min-ungapped-score",
        type=click.IntRange(0),
        default=15,
        show_default=True,
        help="Smallest score (half-bits) that passes the gapless filter.",
    ),
    click.option(
        "--matrix",
        default="BLOSUM62",
        show_default=True,
        help="Substitution matrix: BLOSUM45, 50, 62, 80 or 90, VTML80, PAM30 or PAM70.",
    ),
    click.option(
        "--gap-open",
        type=click.IntRange(1),
        show_default="the matrix's own, 11; 10 for profiles of families",
        help="Cost of a gap's first residue.",
    ),
    click.option(
        "--gap-extend",
        type=click.IntRange(1),
        show_default="the matrix's own, 1",
        help="Cost of each further residue of a gap.",
    ),
    click.option(
        "--comp-bias-corr",
        type=click.IntRange(0, 1),
        default=1,
        show_default=True,
        help="Correct scores for the query's local composition (1) or not (0).",
    ),
    click.option(
        "--num-iterations",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Searches, each but the first with a profile of what the one before found.",
    ),
    click.option(
        "--e-profile",
        type=click.FloatRange(0),
        default=0.1,
        show_default=True,
        help="Largest E-value of a target that becomes part of the profile.",
    ),
    click.option(
        "--min-seq-id",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Smallest fraction of identical residues.",
    ),
)


def _coverage_options(*names: str) -> Callable[[Command], Command]:
    """What `-c` is short for, where it is not the cache."""
    return together(
        click.option(
            *names,
            type=click.FloatRange(0, 1),
            default=0.0,
            show_default=True,
            help="Smallest fraction of residues aligned; see --cov-mode.",
        ),
        click.option(
            "--cov-mode",
            type=click.IntRange(0, 2),
            default=0,
            show_default=True,
            help="Coverage of query and target (0), target (1) or query (2).",
        ),
    )


search_options = together(_hit_options, _coverage_options("-c", "--coverage"))
# for a command whose -c is the cache
search_options_beside_cache = together(_hit_options, _coverage_options("--coverage"))

alignment_options = together(
    click.option(
        "--max-seq-id",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="Largest identity of two rows of the alignment; the shorter goes (ColabFold: 0.95).",
    ),
    click.option(
        "--qid",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Smallest identity of a row with the query, a fraction of its residues.",
    ),
    click.option(
        "--qsc",
        type=float,
        show_default="none",
        help="Smallest score of a row with the query, bits a residue.",
    ),
    click.option(
        "--cov",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Smallest fraction of the query's columns in which a row has a residue.",
    ),
    click.option(
        "--diff",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Keep the most diverse rows, at least so many around every column (ColabFold: 3000); 0 is all.",
    ),
)


def search_settings(options: dict[str, Any], threads: int) -> "SearchSettings":
    """The settings of a search from the values of `search_options`.

    Raises:
        click.UsageError: there is no such matrix, or no E-value statistics for it with the gap costs.
    """
    from msa.errors import InputError
    from msa.search.settings import SearchSettings, default_gap_costs

    matrix = options["matrix"].upper()
    gap_open, gap_extend, profile_gap_open = default_gap_costs(matrix)
    try:
        return SearchSettings(
            evalue=options["evalue"],
            max_seqs=options["max_seqs"],
            min_ungapped_score=options["min_ungapped_score"],
            matrix=matrix,
            gap_open=options["gap_open"] or gap_open,
            gap_extend=options["gap_extend"] or gap_extend,
            profile_gap_open=options["gap_open"] or profile_gap_open,
            comp_bias_corr=bool(options["comp_bias_corr"]),
            min_seq_id=options["min_seq_id"],
            coverage=options["coverage"],
            cov_mode=options["cov_mode"],
            num_iterations=options["num_iterations"],
            e_profile=options["e_profile"],
            threads=threads,
        )
    except InputError as error:
        raise click.UsageError(str(error)) from error


def alignment_filter(options: dict[str, Any]) -> "AlignmentFilter":
    """The filter of an alignment's rows from the values of `alignment_options`.

    Raises:
        click.UsageError: --qsc is no number.
    """
    from msa.errors import InputError
    from msa.search.alignment_filter import AlignmentFilter

    try:
        return AlignmentFilter(
            **{name: options[name] for name in ("max_seq_id", "qid", "qsc", "cov", "diff")}
        )
    except InputError as error:
        raise click.UsageError(f"--{error}") from error
