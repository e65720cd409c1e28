"""Options that several subcommands share, so that they are named and behave alike everywhere."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from foldcli.logs import configure
from foldcli.shard import Shard

if TYPE_CHECKING:
    from msa.alignment_filter import AlignmentFilter
    from msa.search import SearchSettings

Command = TypeVar("Command", bound=Callable[..., Any])


class ShardType(click.ParamType):
    """click type of `--shard I/N`."""

    name = "I/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        if isinstance(value, Shard):
            return value
        try:
            return Shard.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ModelsType(click.ParamType):
    """click type of `--models 1,2,3`."""

    name = "N,N,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers = value.split(",")
        if not all(number in ("1", "2", "3", "4", "5") for number in numbers):
            self.fail(f"expected numbers from 1 to 5 such as 1,2,3, got {value!r}", param, ctx)
        return tuple(dict.fromkeys(map(int, numbers)))


class DeviceType(click.ParamType):
    """click type of `--device auto|cpu|cuda|cuda:N|cuda:N,N,…`."""

    name = "auto|cpu|cuda[:N,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ("auto", "cpu", "cuda"):
            return str(value)
        kind, _, listed = value.partition(":")
        numbers = listed.split(",")
        if kind != "cuda" or not all(number.isascii() and number.isdecimal() for number in numbers):
            self.fail(f"expected auto, cpu, cuda, cuda:N or cuda:N,N,…, got {value!r}", param, ctx)
        plain = [int(number) for number in numbers]
        for number in plain:
            if plain.count(number) > 1:
                self.fail(f"GPU {number} is named twice in {value!r}", param, ctx)
        return f"cuda:{','.join(map(str, plain))}"


class SizeType(click.ParamType):
    """click type of a number of bytes such as 8G."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        size = parse_size(value)
        if size is None:
            self.fail(f"expected bytes such as 500000000, 500M or 2G, got {value!r}", param, ctx)
        return size


def parse_size(text: str) -> int | None:
    """Bytes of text such as 500M, K, M and G being powers of 1,024; None where it is no size."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    return int(number) * unit if number.isascii() and number.isdecimal() and int(number) else None


def available_cores() -> int:
    """Cores this process may use: the scheduler's affinity mask, not the machine's count."""
    return len(os.sched_getaffinity(0))


def together(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several click options as one decorator, listed in the help in the order given."""
    return lambda function: functools.reduce(lambda f, d: d(f), reversed(decorators), function)


threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    default=available_cores,
    show_default="the cores this process may use",
    help="CPU threads.",
)
shard_option = click.option(
    "--shard",
    type=ShardType(),
    default="1/1",
    show_default=True,
    help="Do every N-th target of the sorted names, from the I-th (1-based).",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Redo what is already there.")
out_option = click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results; made when absent.",
)
cache_option = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="$FOLDCLI_CACHE/features",
    help="Folder of the feature cache.",
)
database_option = click.option(
    "--db",
    required=True,
    help="Target database from `foldcli createdb`, or a FASTA file or MMseqs2 database, converted once into "
    "$FOLDCLI_CACHE.",
)
params_option = click.option(
    "--params",
    show_default="$FOLDCLI_PARAMS, else $FOLDCLI_CACHE/params",
    help="Folder with DeepMind's params_model_*.npz, or `demo`: an untrained network to try the path with.",
)

search_options = together(
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
    click.option(
        "-c",
        "--coverage",
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

predict_options = together(
    click.option(
        "--models", type=ModelsType(), default="1,2,3,4,5", show_default=True, help="Models to run, in order."
    ),
    click.option(
        "--model-type",
        type=click.Choice(["auto", "alphafold2_ptm", "alphafold2"]),
        default="auto",
        show_default=True,
        help="Parameters with or without a PAE head; auto takes those with, where they are there.",
    ),
    click.option(
        "--num-recycle",
        type=click.IntRange(0),
        default=3,
        show_default=True,
        help="Recycles after the first pass.",
    ),
    click.option(
        "--recycle-early-stop-tolerance",
        type=click.FloatRange(0),
        default=0.0,
        show_default="never",
        help="Stop recycling once Cα distances change by less than this (Å, root mean square).",
    ),
    click.option("--num-seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds to run."),
    click.option(
        "--random-seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
    ),
    click.option(
        "--max-seq",
        type=click.IntRange(5),
        default=512,
        show_default=True,
        help="Rows of the clustered alignment, four template rows included.",
    ),
    click.option(
        "--max-extra-seq",
        type=click.IntRange(1),
        default=5120,
        show_default=True,
        help="Rows of the extra alignment.",
    ),
    click.option(
        "--rank",
        type=click.Choice(["auto", "plddt", "ptm"]),
        default="auto",
        show_default=True,
        help="Rank models by this; auto is plddt.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["bf16", "fp32"]),
        show_default="bf16 on a GPU that has it, else fp32",
        help="Numbers of the trunk; sums, softmax, structure module and confidence are fp32 always.",
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
        show_default="what is free",
        help="Most GPU memory that the network may take, such as 20G.",
    ),
)


def device_option(what: str) -> Callable[[Command], Command]:
    """`--device` for a command of which `what` runs there."""
    return click.option(
        "--device",
        type=DeviceType(),
        default="auto",
        show_default=True,
        help=f"Where {what}; auto is the first GPU that works, else the CPU.",
    )


def search_settings(options: dict[str, Any], threads: int) -> "SearchSettings":
    """The settings of a search from the values of `search_options`.

    Raises:
        click.UsageError: there is no such matrix, or no E-value statistics for it with the gap costs.
    """
    from msa.errors import InputError
    from msa.search_settings import SearchSettings, default_gap_costs

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
    from msa.alignment_filter import AlignmentFilter
    from msa.errors import InputError

    try:
        return AlignmentFilter(
            **{name: options[name] for name in ("max_seq_id", "qid", "qsc", "cov", "diff")}
        )
    except InputError as error:
        raise click.UsageError(f"--{error}") from error


def logging_options(function: Command) -> Command:
    """Add -q, -v and --log-json, and set up logging from them before the command runs."""

    @click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors on stderr.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
    @click.option("--log-json", is_flag=True, help="Messages as JSON lines.")
    @functools.wraps(function)
    def wrapped(*args: Any, quiet: bool, verbose: bool, log_json: bool, **kwargs: Any) -> Any:
        configure(quiet, verbose, log_json)
        return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
