"""`foldcli warmup`: compile GPU kernels before the first run."""

from typing import Literal

import click

from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options import types
from msa.base.errors import MissingError
from msa.base.hardware import gpu_numbers


def _parse_capability(text: str) -> tuple[int, int]:
    """Return the compute capability of an architecture such as sm_90."""
    digits = text.removeprefix("sm_")
    if not (text.startswith("sm_") and digits.isascii() and digits.isdecimal() and len(digits) in (2, 3)):
        raise ValueError(f"expected an architecture such as sm_90, got {text!r}")
    return int(digits[:-1]), int(digits[-1])


@click.command("warmup")
@options.device_option("predictions")
@click.option(
    "--gpu-arch",
    "capability",
    type=types.ParsedType("sm_NN", _parse_capability),
    metavar="sm_NN",
    help="Compile for this architecture, such as sm_90, instead of a GPU of this machine.",
)
@click.option(
    "--gpu-name",
    metavar="NAME",
    help="With --gpu-arch: the GPU's name as nvidia-smi prints it, which selects tuned kernels.",
)
@click.option(
    "--models",
    type=types.numbers_type("model numbers from 1 to 5", lambda number: number in set("12345")),
    default="1,2,3,4,5",
    show_default=True,
    help="Compile the kernels of these networks.",
)
@click.option(
    "--params",
    type=types.PathType(),
    metavar="NETWORK",
    help="Compile those of this network instead: `compact`, or a folder from `foldcli train --package`.",
)
@click.option(
    "--precision",
    type=click.Choice(["bf16", "fp32"]),
    show_default="bf16 if the GPU supports it",
    help="Number format of the network.",
)
@options.number_option(
    "--max-length",
    numbers=click.IntRange(0),
    default=1024,
    help="Compile search kernels for queries of up to this many residues; 0 compiles none.",
)
@options.logging_options
def command(
    device: str,
    capability: tuple[int, int] | None,
    gpu_name: str | None,
    models: tuple[int, ...],
    params: str | None,
    precision: Literal["bf16", "fp32"] | None,
    max_length: int,
) -> None:
    """Compile the GPU kernels of search and network ahead of the first run.

    Kernels are stored in $FOLDCLI_CACHE/kernels; those of the network serve targets of all lengths. Without
    this command, the first search and the first prediction compile what they need.

    --gpu-arch needs no GPU, so it works on a login node, or while a container image is built.
    """
    if device == "cpu":
        raise click.UsageError("--device cpu needs no kernels.")
    if gpu_name is not None and capability is None:
        raise click.UsageError("--gpu-name needs --gpu-arch.")
    given = options.given_options()
    if capability is not None and "device" in given:
        raise click.UsageError("--device and --gpu-arch exclude each other.")
    if params is not None and "models" in given:
        raise click.UsageError("--models and --params exclude each other.")
    from foldcli.families.registry import find_family
    from foldcli.pipeline.network.kernels import compile_for_gpu, compile_search_kernels, triton_version
    from msa.gpu.device.devices import name_and_capability

    if not triton_version():
        raise MissingError("Triton is not installed", "pip install triton")
    numbers = [] if capability else gpu_numbers(device)
    gpus = [(gpu_name or "", capability)] if capability else []
    for number in numbers:
        gpu_identity = name_and_capability(number)
        if gpu_identity is None:
            raise MissingError(
                f"there is no GPU number {number}", "Name the architecture of another GPU: --gpu-arch sm_90."
            )
        gpus.append(gpu_identity)
    networks = find_family(params).kernel_networks(params, models)
    if not networks:
        raise click.UsageError(f"--params {params}: neither `compact` nor the folder of a network.")
    for gpu in dict.fromkeys(gpus):
        compilation = compile_for_gpu(networks, precision, *gpu)
        if compilation is None:
            logger.info("all kernels of the network are in the cache")
            continue
        status = compilation.wait()
        if status.error:
            raise MissingError(
                f"not all kernels could be compiled: {status.error}", "foldcli doctor checks this machine."
            )
        num_cached = status.total - status.compiled
        logger.info("network: %d kernels compiled, %d found in the cache", status.compiled, num_cached)
    if max_length:
        for gpu in dict.fromkeys(gpus):
            compile_search_kernels(*gpu, max_length)
