"""`foldcli relax`: relax structures with the Amber force field."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from foldcli.errors import SomeTargetsFailed, describe
from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options import types
from foldcli.paths import make_writable_folder
from model.errors import RelaxError
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.io.compression import SUFFIXES

if TYPE_CHECKING:
    from model.relax.amber import RelaxResult


@click.command("relax")
@click.argument("files", nargs=-1, required=True, type=types.PathType(), metavar="FILE...")
@options.out_option
@options.choice_option(
    "--device", choices=["auto", "cpu", "gpu"], help="Device; auto is a GPU if OpenMM can use one."
)
@options.flag("--use-gpu-relax", help="Same as --device gpu.")
@options.number_option(
    "--max-rounds",
    numbers=click.IntRange(1),
    default=3,
    help="Maximum number of relaxations; each removes the restraints of residues that still have violations.",
)
@options.number_option(
    "--max-seconds",
    numbers=click.FloatRange(0, min_open=True),
    default=1800,
    metavar="SECONDS",
    help="Time after which the relaxation of a file fails.",
)
@options.threads_option
@options.overwrite_option
@options.json_option
@options.logging_options
def command(
    files: tuple[str, ...],
    out: Path,
    device: Literal["auto", "cpu", "gpu"],
    use_gpu_relax: bool,
    max_rounds: int,
    max_seconds: float,
    threads: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Relax structures with the Amber force field.

    Relaxes PDB and mmCIF files with AlphaFold2's settings (Amber ff99SB with restraints on heavy atoms), and
    reports energies, violations and backbones before and after; a warning says what is worse. The results are
    named like their files, with `relaxed` instead of `unrelaxed`. Needs the extra `relax`: pip install
    'foldcli[relax]'.

    If a file fails, the reason is printed and the other files are still relaxed; the exit code is 5.

    \b
      foldcli relax results/protein/*_unrelaxed_rank_001_*.pdb -o relaxed
    """
    if use_gpu_relax and device == "cpu":
        raise click.UsageError("--use-gpu-relax and --device cpu exclude each other.")
    from foldcli.pipeline.results.relaxation import choose_relax_device, relax_settings

    relax_settings()  # reports a missing OpenMM before the search for a device
    platform = choose_relax_device("gpu" if use_gpu_relax else device)
    settings = relax_settings(platform, threads, max_rounds, max_seconds)
    outputs = [out / output_name(Path(file).name) for file in files]
    for file, output in zip(files, outputs, strict=True):
        if outputs.count(output) > 1:
            raise click.UsageError(f"several files would be written to {output}")
        if output.exists() and not overwrite:
            raise InputError("already exists; --overwrite replaces it", output)
        if output.resolve() == Path(file).resolve():
            raise click.UsageError(f"{file} would be written to itself: choose another --out")
    make_writable_folder(out)
    num_failed = 0
    for file, output in zip(files, outputs, strict=True):
        result = _relax_file(file, output, settings)
        if result is None:
            num_failed += 1
        elif as_json:
            click.echo(json.dumps({"file": file, "relaxed": str(output)} | result.summary()))
    if num_failed:
        raise SomeTargetsFailed(f"{num_failed} of {len(files)} files could not be relaxed")


def output_name(name: str) -> str:
    """Return the name of the relaxed file, in the format of the input and without compression."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if "unrelaxed" in name:
        return name.replace("unrelaxed", "relaxed", 1)
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}_relaxed.{suffix}" if dot else f"{name}_relaxed.pdb"


def _relax_file(file: str, output: Path, settings: Any) -> "RelaxResult | None":
    """Relax one file; log the reason and return None if that fails."""
    from model.relax.amber import relax
    from msa.io.structures import keep_one_conformer, read_structure

    try:
        source = read_structure(file)
        keep_one_conformer(source.structure)
        result = relax(source.structure, settings)
    except RelaxError as error:
        logger.error("%s: not relaxed: %s", file, error)
        return None
    except (InputError, OSError) as error:
        logger.error("%s: not relaxed", describe(error))
        return None
    structure = result.structure
    text = (
        structure.make_mmcif_document().as_string() if output.suffix in (".cif", ".mmcif") else result.pdb()
    )
    with atomic_write(output) as stream:
        stream.write(text)
    for change in (*source.remarks, *result.changes):
        logger.warning("%s: %s", file, change)
    if result.worse:
        logger.warning("%s: worse after relaxation: %s", file, ", ".join(result.worse))
    logger.info("%s: %s → %s", file, result.describe(), output)
    return result
