"""`foldcli train`: train a network on experimental chains."""

from pathlib import Path
from typing import Any

import click

from foldcli.options import common as options
from foldcli.options.command import GroupedCommand
from foldcli.process_state import share_gpu_memory


@click.command("train", cls=GroupedCommand, replacements={"--prepare": "use --unpack-only."})
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--out",
    "run",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="RUN",
    help="Folder of the run: checkpoints and metrics.jsonl.",
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the packed training data, such as from `foldcli training-data`; overrides the "
    "configuration's `data`.",
)
@click.option(
    "--prepared",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="under $FOLDCLI_CACHE/training",
    help="Folder for the unpacked training data, about 140 MB.",
)
@options.flag("--unpack-only", help="Unpack the training data and stop; -v shows the folder.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Write a checkpoint and stop after this time.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Write a checkpoint and stop after this many steps.",
)
@options.flag("--resume", help="Continue the run in RUN.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="NPZ",
    help="Write the averaged network of RUN as a parameter file for predictions, and stop.",
)
@click.option(
    "--package",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the averaged network of RUN as a folder that `--params` of predictions takes, and stop.",
)
@click.option(
    "--scores",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="JSON",
    help="Results of benchmarks/compact.py to put into the manifest of --package; may be repeated.",
)
@options.choice_option(
    "--device",
    choices=["auto", "cpu", "cuda"],
    help="Device for training; with torchrun, each process uses one GPU.",
)
@options.number_option(
    "--workers",
    numbers=click.IntRange(0),
    default="the configuration's `workers`, else the cores this process may use",
    help="Number of processes per GPU that prepare samples.",
)
@options.logging_options
def command(
    config: Path,
    run: Path | None,
    unpack_only: bool,
    **values: Any,
) -> int | None:
    """Train a network on experimental chains.

    CONFIG is a YAML file; examples/train/compact.yaml explains its keys, and examples/train/alphafold3.yaml
    those of all-atom networks, which train on the complexes of `foldcli training-data --molecules`. The
    state of the run is written to RUN regularly, at the end, and on SIGTERM or Ctrl-C, after the current
    step; --resume continues from it. A second Ctrl-C, and SIGTERM while the network is compiled, end the run
    at once.

    For several GPUs: torchrun --nproc-per-node 2 -m foldcli train CONFIG -o RUN
    """
    share_gpu_memory()
    from foldcli.training.run import TrainingOptions, train

    if run is None and not unpack_only:
        raise click.UsageError("Missing option '-o' / '--out'.")
    return train(TrainingOptions(config, run, unpack_only=unpack_only, **values))
