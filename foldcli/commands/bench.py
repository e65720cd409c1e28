"""`foldcli bench`: measure this machine, and tune GPU kernels for it."""

from pathlib import Path

import click

from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options import types
from foldcli.paths import cache_dir
from msa.base.atomic import atomic_write
from msa.base.errors import MissingError

_LENGTHS = 128, 256, 512, 1024, 2048


@click.group("bench")
def command() -> None:
    """Measure this machine, and tune GPU kernels for it."""


@command.command("gapless")
@options.flag("--tune", help="Find the fastest launch parameters and save them for searches.")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="where searches read it, under $FOLDCLI_CACHE",
    help="With --tune: output file of the launch table.",
)
@click.option(
    "--lengths",
    type=types.numbers_type(
        "query lengths such as 128,256", lambda number: number.isdecimal() and int(number) > 0
    ),
    show_default="128,256,512,1024,2048; with --tune, those of the launch table",
    help="Query lengths.",
)
@click.option(
    "--gpu", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="Index of the GPU."
)
@options.logging_options
def gapless(tune: bool, out: Path | None, lengths: tuple[int, ...] | None, gpu: int) -> None:
    """Time the gapless filter on a GPU by query length.

    Prints the speed of the upper bounds of all scores in TCUPS (10¹² cells, pairs of a query residue and a
    target residue, per second), and as a share of the speed that shared memory allows at two bytes per cell.

    With --tune, tries all suitable launch parameters, which takes minutes, then prints and saves a table of
    the fastest ones. Searches read a GPU's table from $FOLDCLI_CACHE/kernels/tuning, or else the one that is
    installed with foldcli.
    """
    if out is not None and not tune:
        raise click.UsageError("-o needs --tune.")
    from msa.gpu.device.devices import GpuUnavailable, find_gpu

    try:
        device = find_gpu(gpu)
    except GpuUnavailable as error:
        raise MissingError(error.reason, "foldcli bench gapless needs an NVIDIA GPU.") from error
    from msa.gpu.gapless_tuning import GaplessTuner, shared_memory_limit, table_json

    tuner = GaplessTuner(device, cache_dir() / "kernels")
    if tune:
        table = table_json(tuner.tune(tuple(sorted(lengths or ())), lambda line: logger.info("%s", line)))
        click.echo(table, nl=False)
        path = out or tuner.table_path
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(table)
        logger.info("written to %s; searches on this machine read %s", path, tuner.table_path)
        return
    limit = shared_memory_limit()
    click.echo(f"{device.name}, shared memory limit at two bytes per cell: {limit:.1f} TCUPS")
    click.echo(f"{'query':>8}{'bounds':>10}{'share':>8}")
    for length in sorted(lengths or _LENGTHS):
        speed = tuner.speed(length)
        click.echo(f"{length:8}{speed:10.2f}{speed / limit:8.2f}")
