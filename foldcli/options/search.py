"""Options of searches and of the alignments built from their hits."""

from collections.abc import Callable

import click

from foldcli.options.common import Command, combine

_hit_options = combine(
    click.option(
        "-e",
        "--evalue",
        type=click.FloatRange(0),
        default=1e-3,
        show_default=True,
        help="Maximum E-value of a hit.",
    ),
    click.option(
        "--max-seqs",
        type=click.IntRange(1),
        default=300,
        show_default=True,
        help="Maximum number of targets that pass the gapless filter and are aligned.",
    ),
    click.option(
        "--min-ungapped-score",
        type=click.IntRange(0),
        default=15,
        show_default=True,
        help="Minimum score that passes the gapless filter (half-bits).",
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
        show_default="the matrix's default, 11 for BLOSUM62; one less for family profiles",
        help="Cost of a gap's first residue.",
    ),
    click.option(
        "--gap-extend",
        type=click.IntRange(1),
        show_default="the matrix's default, 1 for BLOSUM62",
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
        help="Number of search iterations (profile search from the second on).",
    ),
    click.option(
        "--e-profile",
        type=click.FloatRange(0),
        default=0.1,
        show_default=True,
        help="Maximum E-value of a hit that is added to the profile of the next iteration.",
    ),
    click.option(
        "--min-seq-id",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Minimum fraction of identical residues in a hit.",
    ),
)


def _coverage_options(*names: str) -> Callable[[Command], Command]:
    """Return the coverage options; `names` are the names of the first."""
    return combine(
        click.option(
            *names,
            type=click.FloatRange(0, 1),
            default=0.0,
            show_default=True,
            help="Minimum fraction of aligned residues; see --cov-mode.",
        ),
        click.option(
            "--cov-mode",
            type=click.IntRange(0, 2),
            default=0,
            show_default=True,
            help="Coverage of query and target (0), target (1) or query (2).",
        ),
    )


search_options = combine(_hit_options, _coverage_options("-c", "--coverage"))
# for cache-features, whose -c is the cache
search_options_without_c = combine(_hit_options, _coverage_options("--coverage"))

alignment_options = combine(
    click.option(
        "--max-seq-id",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="Maximum identity of two rows of the alignment; the shorter row is removed (ColabFold: 0.95).",
    ),
    click.option(
        "--qid",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Minimum identity of a row with the query, as a fraction of the row's residues.",
    ),
    click.option(
        "--qsc",
        type=float,
        show_default="none",
        help="Minimum score of a row with the query, in bits per residue.",
    ),
    click.option(
        "--cov",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Minimum fraction of the query's columns in which a row has a residue.",
    ),
    click.option(
        "--diff",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Keep the most diverse rows, at least this many at every column (ColabFold: 3000); 0 keeps all.",
    ),
)
