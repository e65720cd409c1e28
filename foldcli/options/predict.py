"""Options of predictions."""

import re
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from foldcli.options import common
from foldcli.options.common import choice_option, combine, flag, number_option
from foldcli.options.types import ParsedType, PathType, numbers_type, size_type
from foldcli.outputs.layout import LAYOUTS
from foldcli.params.openfold3 import OPENFOLD3
from foldcli.params.parameters import ALPHAFOLD2, TEMPLATE, default_method
from foldcli.values import MAX_SEED
from model.checkpoints.network_folder import COMPACT

# the query, and the four template rows of models 1 and 2
_MIN_ROWS = 5


class ParamsType(PathType):
    """The click type of `--params`: a folder, or a name of parameters, which shells complete too."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that fit, and the kind of completion "file"."""
        known = (ALPHAFOLD2, COMPACT, OPENFOLD3, TEMPLATE)
        names = [name for name in known if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, param, incomplete), *map(CompletionItem, names)]


models_type = numbers_type("numbers from 1 to 5 such as 1,2,3", ("1", "2", "3", "4", "5").__contains__)
"""The click type of `--models 1,2,3`."""


# ColabFold's name of each value of --model-type
_MULTIMER_TYPES = ("multimer_v3", "multimer_v2", "multimer_v1")
_MODEL_TYPES = {
    **{name: name for name in ("auto", "alphafold2", "alphafold2_ptm")},
    **{f"alphafold2_{name}": f"alphafold2_{name}" for name in _MULTIMER_TYPES},
    "monomer": "alphafold2",
    "ptm": "alphafold2_ptm",
    **{name: f"alphafold2_{name}" for name in _MULTIMER_TYPES},
}


class ModelTypeChoice(click.Choice[str]):
    """The click type of `--model-type`."""

    def __init__(self) -> None:
        super().__init__(list(_MODEL_TYPES))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return ColabFold's name of the type."""
        return _MODEL_TYPES[super().convert(value, param, ctx)]


def _parse_msa_rows(text: str) -> tuple[int, int]:
    """Return both numbers of ROWS:EXTRA."""
    numbers = text.split(":")
    if len(numbers) == 2 and all(number.isascii() and number.isdecimal() for number in numbers):
        rows, extra = map(int, numbers)
        if rows >= _MIN_ROWS and extra >= 1:
            return rows, extra
    raise ValueError(f"expected two numbers such as 512:5120, at least {_MIN_ROWS}:1, got {text!r}")


msa_rows_type = ParsedType("ROWS:EXTRA", _parse_msa_rows)
"""The click type of `--max-msa ROWS:EXTRA`."""

result_options = combine(
    common.out_option,
    choice_option(
        "--layout",
        choices=LAYOUTS,
        help="default: one folder per target; colabfold: all files in one folder, under ColabFold's names. "
        "See docs/outputs.md.",
    ),
    choice_option(
        "--rank",
        choices=["auto", "plddt", "ptm", "multimer", "iptm"],
        help="Score that ranks the models; multimer is 0.8 ipTM + 0.2 pTM. auto is multimer for complexes, "
        "plddt for single chains, and the ranking score of all-atom networks. With multimer and iptm, single "
        "chains are ranked by plddt.",
    ),
    common.report_options,
    flag(
        "--save-recycles",
        help="Also save the structure after each pass: NAME_unrelaxed_rank_*.rN.pdb after N recycles.",
    ),
    flag(
        "--save-single-representations",
        "save_single",
        help="Save the single representation: NAME_single_repr_rank_*.npy.",
    ),
    flag(
        "--save-pair-representations",
        "save_pair",
        help="Save the pair representation: NAME_pair_repr_rank_*.npy.",
    ),
    flag(
        "--save-all",
        help="Save representations and all heads' outputs: NAME_all_rank_*.npz, gigabytes for long targets; "
        "with all-atom networks, confidences of all pairs.",
    ),
    flag(
        "--save-pairwise",
        help="Save the PAE of all pairs as ModelCIF, for depositions: NAME_pairwise_rank_*.cif, one line for "
        "each pair.",
    ),
    flag("--zip", "archive", help="Also pack each target's files into NAME.result.zip."),
    common.overwrite_option,
)

run_options = combine(
    common.dry_run_option,
    flag(
        "--json",
        "as_json",
        help="Print one JSON object per model on stdout at the end, as in summary.tsv; with --dry-run, print "
        "the plan as one JSON object.",
    ),
    common.shard_option,
    common.cache_option,
    common.no_verify_option,
    common.logging_options,
)

params_option = click.option(
    "--params",
    type=ParamsType(),
    show_default=f"$FOLDCLI_PARAMS, else $FOLDCLI_CACHE/params, else {default_method()}",
    help="Folder with DeepMind's params_model_*.npz, or with a network from `foldcli train --package`. "
    "`alphafold2` are those of `foldcli params fetch`; `openfold3` those of `foldcli params fetch --which "
    "openfold3`, for proteins, nucleic acids and ligands together; `compact` is the small network in the "
    "package, for single chains; `template` runs no network and copies the best template.",
)
jobs_option = click.option(
    "--params",
    type=ParamsType(),
    metavar="openfold3",
    help="Read the input as jobs of molecules for this network.",
)
seed_options = combine(
    number_option("--num-seeds", numbers=click.IntRange(1), default="1", help="Number of seeds to run."),
    number_option("--random-seed", numbers=click.IntRange(0, MAX_SEED), default="0", help="The first seed."),
)
chains_type = numbers_type("ids of chains such as A,C", re.compile("[A-Za-z0-9]+").fullmatch, str)
"""The click type of `--cyclic A,C`."""

design_options = combine(
    click.option(
        "--initial-guess",
        type=click.Path(exists=True, path_type=Path),
        metavar="STRUCTURE",
        help="Start recycling from this structure's positions; in a folder, NAME.cif or NAME.pdb is that "
        "of target NAME. Chains correspond in order. Not with all-atom networks.",
    ),
    click.option(
        "--cyclic",
        type=chains_type,
        default=(),
        metavar="CHAINS",
        help="These chains are cyclic, such as A,C: their first and last residues are neighbours. Jobs for "
        "Boltz name cyclic chains themselves.",
    ),
    flag(
        "--dropout",
        "--use-dropout",
        "dropout",
        help="Drop updates of the network at random as in its training, others with each seed, to find other "
        "states.",
    ),
    flag(
        "--msa-cluster",
        help="Cluster the alignment's rows, to find other states (AF_Cluster): seed 0 has all rows, seed 1 "
        "those of the largest cluster, and so on; add --num-seeds. For networks of single chains.",
    ),
    click.option(
        "--msa-mask",
        type=click.FloatRange(0, 1, max_open=True),
        metavar="FRACTION",
        default=0.0,
        show_default="0: none",
        help="Mask this share of the alignment's columns, others with each seed, to find other states "
        "(AFsample2: 0.15 to 0.3, many seeds). Not with all-atom networks.",
    ),
)
prediction_options = combine(
    click.option(
        "--models",
        "--model-order",
        "models",
        type=models_type,
        default="1,2,3,4,5",
        show_default=True,
        help="Models to run, in order.",
    ),
    number_option(
        "--num-models", numbers=click.IntRange(1, 5), default="all", help="Run only the first N of --models."
    ),
    click.option(
        "--model-type",
        type=ModelTypeChoice(),
        metavar="TYPE",
        default="auto",
        show_default=True,
        help="Networks: alphafold2_ptm (or ptm) has a PAE head, alphafold2 (or monomer) has none, "
        "alphafold2_multimer_v3 (or multimer_v3; also v2 and v1) is for complexes. auto is multimer_v3 for "
        "complexes; for single chains, it is ptm if its parameters exist, else monomer.",
    ),
    number_option(
        "--num-recycle",
        "num_recycles",
        numbers=click.IntRange(0),
        default="3; 20 with multimer_v3 networks; 2 with `compact`",
        help="Maximum number of recycles after the first pass.",
    ),
    number_option(
        "--recycle-early-stop-tolerance",
        numbers=click.FloatRange(0),
        default="0, never; 0.5 with multimer_v3 networks",
        metavar="ANGSTROM",
        help="Stop recycling once Cα distances change by less than this (Å, root mean square).",
    ),
    number_option(
        "--num-diffusion-samples",
        numbers=click.IntRange(1),
        default="5",
        help="Structures for each seed, with all-atom networks.",
    ),
    number_option(
        "--num-diffusion-steps",
        numbers=click.IntRange(1),
        default="200",
        help="Denoising steps of each structure, with all-atom networks.",
    ),
    seed_options,
    design_options,
    click.option(
        "--stop-at-score",
        type=click.FloatRange(0, 100),
        metavar="PLDDT",
        default=100.0,
        show_default="100: never",
        help="Skip a target's remaining models and seeds once a model has a higher mean pLDDT.",
    ),
    click.option(
        "--max-msa",
        type=msa_rows_type,
        default="512:5120",
        show_default=True,
        help="Maximum number of alignment rows for the network: ROWS of the clustered alignment, including "
        "four template rows, and EXTRA rows of the extra alignment. Multimer networks have no template rows "
        "and get at most 508:2048, models 4 and 5 of them 508:1152; `compact` gets no more than in "
        "its training.",
    ),
)

relax_options = combine(
    click.option(
        "--refine/--no-refine",
        default=None,
        show_default="on with `compact` and other networks from `foldcli train`",
        help="Make the bonds between residues regular and remove clashes, close to the network's structure "
        "and without a force field.",
    ),
    number_option(
        "--num-relax",
        numbers=click.IntRange(0),
        default="0, or all with --amber",
        help="Relax the best N models of each target with OpenMM; needs the extra `relax`.",
    ),
    flag("--amber", help="Relax all models, or those of --num-relax."),
    flag("--use-gpu-relax", help="Relax on a GPU instead of the CPU."),
)

network_device_options = combine(
    click.option(
        "--precision",
        type=click.Choice(["bf16", "fp32"]),
        show_default="bf16 on a GPU that supports it, else fp32",
        help="Number format of the trunk; sums, softmax, structure module and confidence are always fp32.",
    ),
    choice_option(
        "--kernels",
        choices=["auto", "fused", "reference"],
        help="Triton kernels (fused) or plain PyTorch (reference); auto is fused on a GPU.",
    ),
    click.option(
        "--max-memory",
        type=size_type,
        show_default="all free memory",
        help="Maximum GPU memory for the network, such as 20G.",
    ),
)
