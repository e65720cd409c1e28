"""Options of searches and of the alignments built from their hits."""

from collections.abc import Callable

import click

from foldcli.options.common import Command, choice_option, combine, flag, number_option
from foldcli.options.types import ParsedType

_FOLDING_DEFAULTS = {
    "evalue": "0.1",
    "max_seqs": "10000",
    "num_iterations": "3",
    "max_seq_id": "0.95",
    "qid": "0,0.2,0.4,0.6,0.8,1",
    "diff": "3000",
    "filter_min_enable": "1000",
}
_TABLE_DEFAULTS = {"evalue": "1e-3", "max_seqs": "300", "num_iterations": "1"}


def _parse_identity_limits(text: str) -> tuple[float, ...]:
    """Return the fractions of `--qid`: one, or several in ascending order, separated by commas."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers such as 0,0.5,1") from None


_SCORE_OPTIONS = (
    click.option(
        "--matrix",
        metavar="NAME",
        default="CONTEXT",
        show_default=True,
        help="Scores: CONTEXT, which depend on a residue's neighbours, or a substitution matrix: "
        "BLOSUM45, 50, 62, 80 or 90, VTML80, PAM30 or PAM70.",
    ),
    number_option(
        "--gap-open",
        numbers=click.IntRange(1),
        default="12 for CONTEXT, 11 for BLOSUM62; 10 for family profiles with either",
        help="Cost of a gap's first residue.",
    ),
    number_option(
        "--gap-extend",
        numbers=click.IntRange(1),
        default="1 for CONTEXT and BLOSUM62",
        help="Cost of each further residue of a gap.",
    ),
    number_option(
        "--comp-bias-corr",
        numbers=click.IntRange(0, 1),
        default=1,
        help="Correct scores for biased composition and repeats (1) or not (0).",
    ),
)


def _hit_options(tables: bool) -> Callable[[Command], Command]:
    """Return the options of a search.

    Args:
        tables: whether the command also writes tables, which have other defaults.
    """

    def default(name: str) -> str:
        table_default = f"; for --format m8 {_TABLE_DEFAULTS[name]}" if tables else ""
        return f"{_FOLDING_DEFAULTS[name]}{table_default}"

    return combine(
        number_option(
            "-e",
            "--evalue",
            numbers=click.FloatRange(0),
            default=default("evalue"),
            metavar="EVALUE",
            help="Maximum E-value of a hit.",
        ),
        number_option(
            "--max-seqs",
            numbers=click.IntRange(1),
            default=default("max_seqs"),
            help="Maximum number of hits per query, or per region of a query of more than 2,000 residues; "
            "members of clusters are not counted.",
        ),
        number_option(
            "--min-ungapped-score",
            numbers=click.IntRange(0),
            default=15,
            help="Minimum score of a target that passes the gapless filter, in half-bits.",
        ),
        *_SCORE_OPTIONS,
        number_option(
            "--num-iterations",
            numbers=click.IntRange(1),
            default=default("num_iterations"),
            help="Number of search iterations (profile search from the second on).",
        ),
        flag("--fast", help="Search once instead of three times."),
        number_option(
            "--e-profile",
            numbers=click.FloatRange(0),
            default="0.1",
            metavar="EVALUE",
            help="Maximum E-value of a hit that is added to the profile of the next iteration.",
        ),
        number_option(
            "--min-seq-id",
            numbers=click.FloatRange(0, 1),
            default=0.0,
            metavar="FRACTION",
            help="Minimum fraction of identical residues in a hit.",
        ),
    )


def _coverage_options(*names: str) -> tuple[Callable[[Command], Command], ...]:
    """Return the coverage options; `names` are the names of the first."""
    return (
        number_option(
            *names,
            "coverage",
            numbers=click.FloatRange(0, 1),
            metavar="FRACTION",
            default="0.0",
            help="Minimum fraction of aligned residues in a hit; see --cov-mode.",
        ),
        number_option(
            "--cov-mode",
            numbers=click.IntRange(0, 2),
            default="0",
            help="Coverage of query and target (0), target (1) or query (2).",
        ),
    )


search_options = combine(_hit_options(tables=True), *_coverage_options("-c", "--min-coverage"))
fold_search_options = combine(_hit_options(tables=False), *_coverage_options("-c", "--min-coverage"))
# for cache-features, where -c could be taken for the cache
search_options_without_c = combine(_hit_options(tables=False), *_coverage_options("--min-coverage"))

alignment_options = combine(
    number_option(
        "--max-seq-id",
        numbers=click.FloatRange(0, 1),
        default=_FOLDING_DEFAULTS["max_seq_id"],
        metavar="FRACTION",
        help="Maximum identity of two rows of the alignment; the shorter row is removed. 1 keeps all.",
    ),
    click.option(
        "--qid",
        type=ParsedType("FRACTION,…", _parse_identity_limits),
        show_default=_FOLDING_DEFAULTS["qid"],
        help="Minimum identity of a row with the query, as a fraction of the row's residues. With several "
        "limits, --max-seq-id and --diff are applied separately to the rows between two of them.",
    ),
    click.option(
        "--qsc",
        type=float,
        metavar="BITS",
        show_default="none",
        help="Minimum score of a row with the query, in bits per residue.",
    ),
    number_option(
        "--cov",
        numbers=click.FloatRange(0, 1),
        default=0.0,
        metavar="FRACTION",
        help="Minimum fraction of the query's columns in which a row has a residue.",
    ),
    number_option(
        "--diff",
        numbers=click.IntRange(0),
        default=_FOLDING_DEFAULTS["diff"],
        help="Keep the most diverse rows, at least this many in every part of the alignment; 0 keeps all.",
    ),
    number_option(
        "--filter-min-enable",
        numbers=click.IntRange(0),
        default=f"{_FOLDING_DEFAULTS['filter_min_enable']}; 0 with any of the options above",
        help="Leave alignments with at most this many rows unfiltered.",
    ),
)

pairing_options = combine(
    choice_option(
        "--pair-mode",
        choices=["unpaired_paired", "paired", "unpaired"],
        help="Rows in the alignment of a complex: paired rows, which join rows of several chains from one "
        "species, unpaired rows of single chains, or both.",
    ),
    choice_option(
        "--pair-strategy",
        choices=["greedy", "complete"],
        help="Pair rows of a species that occurs in at least two chains (greedy), or in all chains "
        "(complete).",
    ),
)
