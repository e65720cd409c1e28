"""Options of predictions that are divided among several processes, the ranks."""

import click

from foldcli.options.common import combine, number_option

rank_options = combine(
    number_option(
        "--gpus-per-target",
        numbers=click.IntRange(1),
        default=1,
        help="For long proteins: divide each prediction among N GPUs of this host, or with --device cpu "
        "among N processes. With torchrun, N is its number of processes; see docs/parallel.md.",
    ),
    number_option(
        "--rank-timeout",
        numbers=click.FloatRange(0, min_open=True),
        default=600.0,
        metavar="SECONDS",
        help="End the run if the processes of --gpus-per-target make no progress for this long.",
    ),
)
