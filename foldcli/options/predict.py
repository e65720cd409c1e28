"""Options of predictions."""

import click

from foldcli.options.common import NumbersType, SizeType, combine
from foldcli.outputs.layout import LAYOUTS

models_type = NumbersType("numbers from 1 to 5 such as 1,2,3", ("1", "2", "3", "4", "5").__contains__)
"""The click type of `--models 1,2,3`."""

layout_option = click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default="default",
    show_default=True,
    help="One folder per target, or all files in one folder with ColabFold's names; see docs/outputs.md.",
)

json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per model on stdout at the end, as in summary.tsv.",
)

predict_options = combine(
    click.option(
        "--models", type=models_type, default="1,2,3,4,5", show_default=True, help="Models to run, in order."
    ),
    click.option(
        "--model-type",
        type=click.Choice(["auto", "alphafold2_ptm", "alphafold2"]),
        default="auto",
        show_default=True,
        help="Parameters with (_ptm) or without a PAE head; auto prefers those with one.",
    ),
    click.option(
        "--num-recycle",
        "num_recycles",
        type=click.IntRange(0),
        default=3,
        show_default=True,
        help="Number of recycles after the first pass.",
    ),
    click.option(
        "--recycle-early-stop-tolerance",
        type=click.FloatRange(0),
        default=0.0,
        show_default="never",
        help="Stop recycling once Cα distances change by less than this (Å, root mean square).",
    ),
    click.option(
        "--num-seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of seeds to run."
    ),
    click.option(
        "--random-seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
    ),
    click.option(
        "--max-seq",
        type=click.IntRange(5),
        default=512,
        show_default=True,
        help="Maximum number of rows of the clustered alignment, including four template rows.",
    ),
    click.option(
        "--max-extra-seq",
        type=click.IntRange(1),
        default=5120,
        show_default=True,
        help="Maximum number of rows of the extra alignment.",
    ),
    click.option(
        "--rank",
        type=click.Choice(["auto", "plddt", "ptm"]),
        default="auto",
        show_default=True,
        help="Score that ranks the models; auto is plddt.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["bf16", "fp32"]),
        show_default="bf16 on a GPU that supports it, else fp32",
        help="Number format of the trunk; sums, softmax, structure module and confidence are always fp32.",
    ),
    click.option(
        "--kernels",
        type=click.Choice(["auto", "fused", "reference"]),
        default="auto",
        show_default=True,
        help="Triton kernels (fused) or plain PyTorch (reference); auto is fused on a GPU.",
    ),
    click.option(
        "--max-memory",
        type=SizeType(),
        show_default="all free memory",
        help="Maximum GPU memory for the network, such as 20G.",
    ),
)
