"""Requests of predictions: from a command line and from Python values; combinations of options that fail."""

import sys
from pathlib import Path
from typing import Any

import pytest

from foldcli.cli import cli
from foldcli.commands.fold import command
from foldcli.errors import ExitCode, OptionError, exit_code_of, run_with_exit_codes
from foldcli.logs import logger
from foldcli.options.command import parse_python_values
from foldcli.options.common import given_options
from foldcli.pipeline.runs.prediction import fold_targets
from foldcli.pipeline.runs.request import KeptState, PredictionRequest
from foldcli.pipeline.search.options import SearchOptions
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.values import MAX_SEED
from msa.alignments.filter_settings import AlignmentFilter
from msa.engines.search_settings import SearchSettings

FIXED = {"out": "o", "databases": ["db"]}


def from_command_line(*arguments: str) -> PredictionRequest:
    context = command.make_context("fold", ["q.fasta", "-o", "o", "--db", "db", *arguments])
    return PredictionRequest.from_options(context.params, given_options(context))


def from_python(**options: Any) -> PredictionRequest:
    return PredictionRequest.from_options(*parse_python_values(command, ["q.fasta"], options, FIXED))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        ([], {"num_models": None, "fast": False, "num_recycle": False}),
        (["--models", "3,1", "--num-models", "1"], {"models": (3, 1), "num_models": 1}),
        (["--num-recycle", "0", "--max-msa", "16:32"], {"num_recycle": 0, "max_msa": "16:32"}),
        (["--fast", "-e", "0.01", "--qid", "0,0.5"], {"fast": True, "evalue": 1e-2, "qid": [0, 0.5]}),
        (["--refine"], {"refine": True}),
        (["--no-refine", "--no-verify"], {"refine": False, "no_verify": True}),
        (["--templates", "--exclude-self"], {"templates": True, "exclude_self": True}),
        (["--templates", "LIBRARY"], {"templates": Path("LIBRARY")}),
        (["--find-similar", "--no-plots"], {"find_similar": True, "no_plots": True}),
        (["--no-templates", "--params", "compact"], {"no_templates": True, "params": "compact"}),
        (["--save-pair-representations", "--shard", "1/2"], {"save_pair_representations": 1, "shard": "1/2"}),
        (["--max-memory", "2G", "--device", "cuda:1,0"], {"max_memory": 2**31, "device": "cuda:1,0"}),
        (["--use-dropout", "--num-seeds", "2", "--amber"], {"use_dropout": True, "num_seeds": 2, "amber": 1}),
    ],
)
def test_python_values_give_the_request_of_the_command_line(
    arguments: list[str], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("LIBRARY").mkdir()
    request = from_command_line(*arguments)
    assert from_python(**options) == request
    assert (request == from_command_line()) == (not arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_models": 6}, "Invalid value for '--num-models': 6 is not in the range 1<=x<=5."),
        ({"num_recycle": 0.5}, "Invalid value for '--num-recycle': '0.5' is not a valid integer range."),
        ({"models": (9,)}, "Invalid value for '--models' / '--model-order': expected numbers from 1 to 5"),
        ({"num_models": True}, "--num-models requires a value"),
        ({"qid": True}, "--qid requires a value"),
        ({"params": "template", "dropout": True}, "--dropout: only networks have it"),
        ({"num_diffusion_samples": 5}, "--num-diffusion-samples: only all-atom networks have it"),
        ({"params": "template", "num_diffusion_steps": 9}, "--num-diffusion-steps: only all-atom networks"),
        ({"params": "openfold3", "save_pair_representations": True}, "--save-pair-representations: all-atom"),
        ({"params": "openfold3", "cyclic": "A"}, "--cyclic: all-atom networks have no such option; write"),
        ({"params": "openfold3", "use_gpu_relax": True}, "--use-gpu-relax: all-atom networks have no such"),
        ({"fast": True, "num_iterations": 3}, "--fast is one iteration"),
    ],
)
def test_bad_python_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as failure:
        from_python(**options)
    assert str(failure.value).startswith(message)
    assert exit_code_of(failure.value) is ExitCode.USAGE


def test_options_count_as_given_whatever_their_values() -> None:
    values = command.make_context("fold", ["q.fasta", "-o", "o"]).params | {"params": "template"}
    PredictionRequest.from_options(values, ())
    with pytest.raises(OptionError, match="--msa-mask: only networks have it"):
        PredictionRequest.from_options(values, {"msa_mask"})


def test_a_database_of_rna_is_for_all_atom_networks() -> None:
    with pytest.raises(OptionError, match="--rna-db is for all-atom networks"):
        fold_targets(from_python(), ["q.fasta"], "rna")


RNA = "--rna-db is for all-atom networks (--params openfold3)."
PREDICT = ["predict", "a.a3m", "-o", "o"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fold", "q", "-o", "o", "--fast", "--num-iterations", "2"],
         "--fast is one iteration: it cannot be combined with --num-iterations."),
        (["fold", "q", "-o", "o", "--rna-db", "rna"], RNA),
        (["fold", "q", "-o", "o", "--diff", "3", "--max-seq-id", "nan"],
         "--max-seq-id is nan: expected 0 to 1"),
        (["fold", "q", "-o", "o", "--min-coverage", "nan"], "--min-coverage is nan: expected 0 to 1"),
        (["search", "q", "db", "-o", "o", "--max-seqs", "9999999999"], "--max-seqs is 9999999999: expected"),
        (["relax", "x.pdb", "-o", "o", "--use-gpu-relax", "--device", "cpu"],
         "--use-gpu-relax and --device cpu exclude each other."),
        (["screen", "q", "-o", "o", "--matrix", "PAM1"], "unknown matrix 'PAM1'"),
        (["cache-features", "q.fasta", "--db", "d", "--matrix", "rna"],
         "--matrix RNA: `foldcli search --molecule rna` has these scores."),
        (["search", "q.fasta", "d", "-o", "o", "--matrix", "RNA"],
         "--matrix RNA: `foldcli search --molecule rna` has these scores."),
        ([*PREDICT, "--num-models", "2", "--models", "1"], "--num-models 2: --models has only 1."),
        ([*PREDICT, "--num-seeds", "2", "--random-seed", str(MAX_SEED)],
         f"--num-seeds: the last seed would be larger than {MAX_SEED}."),
        ([*PREDICT, "--gpus-per-target", "2", "--dropout"],
         "--dropout: several GPUs cannot predict a target together with it"),
        ([*PREDICT, "--gpus-per-target", "2", "--params", "template"],
         "--params template runs no network that several processes could share."),
        ([*PREDICT, "--params", "template", "--no-templates"],
         "--params template and --no-templates exclude each other"),
        ([*PREDICT, "--params", "template", "--cyclic", "A"],
         "--cyclic: only networks have it, and --params template copies"),
        ([*PREDICT, "--params", "template", "--num-recycle", "0"],
         "--num-recycle: only networks have it, and --params template copies"),
        ([*PREDICT, "--params", "template", "--save-pair-representations", "--rank", "plddt"],
         "--save-pair-representations: only networks have it, and --params template copies"),
        ([*PREDICT, "--num-diffusion-steps", "9"],
         "--num-diffusion-steps: only all-atom networks have it (--params openfold3)"),
        ([*PREDICT, "--max-template-date", "soon"], "--max-template-date"),
        ([*PREDICT, "--templates", "LIBRARY", "--no-templates"],
         "--templates and --no-templates exclude each other"),
        (["cache-features", "q", "--random-seed", "3"],
         "--random-seed is for jobs of molecules (--params openfold3)"),
        (["cache-features", "q", "--db", "a", "--db", "a"], "Invalid value for '--db': a is given twice."),
        (["cache-features", "q", "--db", "a", "--db", "./a/"],
         "Invalid value for '--db': ./a/ is given twice."),
        (["cache-features", "q", "--params", "compact"],
         "--params: only all-atom networks have jobs of molecules; leave it out"),
        (["cache-features", "q.fasta"],
         "q.fasta holds unaligned sequences, which need a search: give a database with --db (an alignment of "
         "one sequence is a file ending in .a3m)"),
        (["search", "q", "db", "-o", "o", "--strand", "both"],
         "--strand is for --molecule rna and --rna-db."),
        (["search", "q", "db", "-o", "o", "--exact", "--partial"],
         "--exact cannot be combined with --partial."),
        (["search", "q", "db", "-o", "-", "--partial"], "--partial writes a file: name it with -o."),
        (["search", "q", "--db", "a", "--db", "b", "-o", "o", "--exact"], "--exact takes one database."),
        (["search", "q", "db", "-o", "o", "--format", "a3m", "--format-output", "query"],
         "--format-output is for --format m8 only."),
        (["search", "--structure", "q", "-o", "o", "--fast"], "--structure cannot be combined with --fast."),
        (["search", "--structure", "q", "-o", "q.fasta"], "q.fasta exists; --overwrite replaces it."),
        (["templates", "q", "-o", "q.fasta"], "q.fasta exists; --overwrite replaces it."),
        (["templates", "q", "-o", "t", "--no-templates"],
         "--no-templates and --pdb-hit-file leave nothing to search."),
        (["params", "fetch", "--url", "ftp://x/y"],
         "--url: expected an https address, got 'ftp://x/y'; use --from for a file"),
        (["db", "fetch", "x", "-o", "d", "--sources", "sources.toml"],
         "--url: a file sent over http could be forged; give --sha256, or use https"),
        (["training-data", "q.fasta", "-o", "d", "--molecules", "--seed", "1"],
         "--seed does not apply with --molecules."),
        (["search", "q", "db", "-o", "o", "--e-profile", "1"],
         "--e-profile needs a search of several iterations (--num-iterations)."),
        (["fold", "q", "-o", "o", "--fast", "--e-profile", "0.1"],
         "--e-profile needs a search of several iterations (--num-iterations)."),
        (["fold", "q", "-o", "o", "--cov-mode", "0"], "--cov-mode needs --min-coverage."),
        (["search", "q", "db", "-o", "o", "--pair-mode", "paired"],
         "--pair-mode is for --format a3m and jobs."),
        (["search", "q", "db", "-o", "o", "--format", "sto", "--cache", "c"],
         "--cache is for --format a3m and jobs."),
        (["search", "q", "db", "-o", "o", "--format", "a3m", "--molecule", "rna", "--pair-mode", "paired"],
         "--molecule rna cannot be combined with --pair-mode."),
        (["search", "q", "db", "-o", "o", "--format", "a3m", "--params", "openfold3", "--save-profile", "p"],
         "--params: jobs are searched with --format a3m, and without profiles or parts."),
        (["search", "q", "db", "-o", "o", "--exact", "--device", "cuda"],
         "--exact cannot be combined with --device cuda."),
        (["search", "q", "db", "-o", "o", "--exact", "--comp-bias-corr", "1"],
         "--exact cannot be combined with --comp-bias-corr."),
        (["cache-features", "q.a3m", "--max-seq-id", "0.5"],
         "--max-seq-id is for searches, which need a database: give one with --db"),
        (["cache-features", "q.a3m", "--params", "openfold3", "--min-coverage", "0"],
         "--min-coverage is for searches, which need a database: give one with --db"),
        ([*PREDICT, "--use-gpu-relax"], "--use-gpu-relax needs --num-relax or --amber"),
        ([*PREDICT, "--rank-timeout", "9"], "--rank-timeout needs --gpus-per-target"),
        ([*PREDICT, "--params", "compact", "--models", "3"],
         "--models: there is one network in the folder of --params"),
        (["report", ".", "--tables-only", "--reference", "."],
         "--reference and --find-similar do not apply with --tables-only"),
        (["createdb", "--info", "d", "--no-mask"],
         "give either FASTA files with -o DB, or --info DB, or --verify DB"),
        (["doctor", "--predict", "--time-limit", "9"], "--time-limit does not apply with --predict."),
        (["warmup", "--gpu-arch", "sm_90", "--device", "cuda"],
         "--device and --gpu-arch exclude each other."),
        (["warmup", "--params", "compact", "--models", "3"], "--models and --params exclude each other."),
        (["params", "fetch", "--which", "openfold3", "--models", "3"],
         "--models does not apply to --which openfold3."),
        (["params", "fetch", "--url", "https://x/y", "--from", "q.fasta"],
         "--url and --from exclude each other."),
        (["db", "fetch", "x", "-o", "d", "--url", "https://x/y", "--from", "q.fasta"],
         "--url and --from exclude each other."),
        (["train", "q.fasta", "-o", "d"], "q.fasta:"),
    ],
)  # fmt: skip
def test_bad_combinations_are_usage_errors(
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(sys, "argv", ["foldcli", *arguments])
    Path("q.fasta").write_text(">q\nMKV\n")
    Path("sources.toml").write_text('[x]\ndescription = "x"\nurl = "http://localhost/x"\n')
    Path("LIBRARY").mkdir()
    assert run_with_exit_codes(cli) == ExitCode.USAGE
    usage, *_, error = capsys.readouterr().err.splitlines()
    name = " ".join(arguments[:2] if arguments[0] in ("params", "db") else arguments[:1])
    assert f"foldcli {name} " in usage  # after the name of the program
    assert error.startswith(f"Error: {line}")


def test_options_of_searches_apply_to_a_database_of_rna_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rna.fasta").write_text(">r\nACGUACGUACGUACGU\n")
    Path("job.fasta").write_text(">A|rna\nACGUACGUACGUACGU\n")
    options = ["--params", "openfold3", "--rna-db", "rna.fasta", "--evalue", "1e-5", "--dry-run"]
    monkeypatch.setattr(sys, "argv", ["foldcli", "cache-features", "job.fasta", "--cache", "c", *options])
    assert run_with_exit_codes(cli) == ExitCode.DONE
    assert "1 to do" in capsys.readouterr().out


def test_a_session_opens_its_database_once() -> None:
    state, settings = KeptState(), AlignmentSettings(SearchSettings(), AlignmentFilter())
    stage, description = state.open(SearchOptions(None, settings).with_database(), "cpu")
    again = state.open(SearchOptions("missing", settings), "cpu")
    assert again[0] is stage and again[1] == description
