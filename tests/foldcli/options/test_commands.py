"""Tests of the options of commands, parsed in this process: aliases, replaced options, groups of the help."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from features.cache.cache import FeatureCache
from foldcli.cli import COMMANDS, cli
from foldcli.errors import OptionError
from foldcli.families.registry import with_params
from foldcli.families.settings import NetworkOptions
from foldcli.options.command import (
    CACHE_REPLACEMENTS,
    COMMON_OPTIONS,
    PAIRING_REPLACEMENTS,
    PREDICTION_REPLACEMENTS,
    SEARCH_REPLACEMENTS,
)
from foldcli.options.predict import msa_rows_type
from msa.alignments.files import parse_alignment

GROUPED = ("fold", "predict", "search", "cache-features")
REPLACEMENTS = {
    "fold": PREDICTION_REPLACEMENTS | SEARCH_REPLACEMENTS,
    "predict": PREDICTION_REPLACEMENTS | PAIRING_REPLACEMENTS,
    "search": SEARCH_REPLACEMENTS,
    "cache-features": CACHE_REPLACEMENTS,
}


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def network_options(*arguments: str) -> NetworkOptions:
    """Return the network's options of a `predict` command line."""
    values: dict[str, Any] = (
        command("predict").make_context("predict", ["t.a3m", "-o", "o", *arguments]).params
    )
    return with_params(NetworkOptions.from_options(values), values["params"])


def test_model_options_of_colabfold() -> None:
    assert network_options().models == (1, 2, 3, 4, 5)
    assert network_options("--num-models", "2").models == (1, 2)
    assert network_options("--model-order", "3,1,2", "--num-models", "2").models == (3, 1)
    assert network_options("--model-order", "3,1") == network_options("--models", "3,1")
    with pytest.raises(OptionError, match="--num-models 3: --models has only 2"):
        network_options("--models", "1,2", "--num-models", "3")


def test_templates_need_no_library() -> None:
    arguments = ["t.a3m", "-o", "o"]
    for own, expected in (([], None), (["--templates"], None), (["--templates", __file__], Path(__file__))):
        for order in ([*own, "--no-plots", *arguments], [*arguments, *own]):
            context = command("predict").make_context("predict", list(order))
            assert context.params["templates"] == expected and context.params["targets"] == ("t.a3m",)


def test_max_msa_sets_both_numbers_of_rows() -> None:
    predict = network_options("--max-msa", "16:32").predict
    assert (predict.max_seq, predict.max_extra_seq) == (16, 32)
    assert network_options().predict == network_options("--max-msa", "512:5120").predict


@pytest.mark.parametrize("text", ["", "512", "512:", ":1", "4:1", "5:0", "5:1:1", "5:-1", "5:1.0", "²:5"])
def test_invalid_max_msa(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected two numbers such as 512:5120"):
        msa_rows_type.convert(text, None, None)


@pytest.mark.parametrize("name", GROUPED)
def test_replaced_options_are_refused_with_the_replacement(name: str) -> None:
    existing = {spelling for parameter in command(name).params for spelling in parameter.opts}
    assert not existing & REPLACEMENTS[name].keys()
    for option, replacement in REPLACEMENTS[name].items():
        for arguments in ([option, "1"], [f"{option}=1"] if option.startswith("--") else [f"{option}1"]):
            result = CliRunner().invoke(cli, [name, "x", *arguments])
            assert result.exit_code == 2
            assert result.output.splitlines()[-1] == f"Error: {option}: {replacement}"


@pytest.mark.parametrize("option", ["--skip-output", "--max-template-hits", "--relax-tolerance"])
def test_options_of_colabfold_without_a_counterpart_get_a_hint(option: str) -> None:
    for name in ("fold", "screen", "predict"):
        result = CliRunner().invoke(cli, [name, "x", option, "1"])
        assert result.exit_code == 2
        assert result.output.splitlines()[-1].startswith(f"Error: {option}: ")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "db"
    folder.mkdir()
    for name in ("manifest.json", "residues.u8"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["fold", "q.fasta", "DB", "-o", "out"], "DB is a database: use --db DB"),
        (["screen", "q.fasta", "DB", "-o", "out"], "DB is a database: use --db DB"),
        (["cache-features", "q.fasta", "DB"], "DB is a database: use --db DB"),
        (["predict", "q.a3m", "DB", "-o", "out"], "use foldcli fold QUERY --db DB"),
        (["fold", "q.fasta", "--templates", "DB", "-o", "out"], "without structures: use --db DB"),
        (["search", "DB", "q.fasta", "-o", "out"], "the database comes last, after the queries."),
        (["search", "DB", "--server", "s", "-o", "out"], "the database is the server's."),
        (["createdb", "DB", "-o", "out"], "DB is a database: nothing to build"),
    ],
)
def test_database_in_another_place_is_refused_at_once(
    database: Path, arguments: list[str], advice: str
) -> None:
    result = CliRunner().invoke(cli, [argument.replace("DB", str(database)) for argument in arguments])
    assert result.exit_code == 2
    assert advice.replace("DB", str(database)) in result.output
    # a structure library contains a database
    library = database.parent
    result = CliRunner().invoke(cli, ["fold", "q.fasta", str(database.rename(library / "sequences").parent)])
    assert (result.exit_code, f"use --templates {library}" in result.output) == (2, True)


@pytest.mark.parametrize("name", GROUPED)
def test_replacements_name_existing_options(name: str) -> None:
    every = {
        spelling for each in ("fold", "predict", "search", "cache-features", "relax")
        for parameter in command(each).params for spelling in parameter.opts
    }  # fmt: skip
    for replacement in REPLACEMENTS[name].values():
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", replacement.replace("`", ""))) <= every, replacement


@pytest.mark.parametrize("name", GROUPED)
def test_help_has_groups_and_two_examples_within_80_columns(name: str) -> None:
    has_all = "--help-all" in CliRunner().invoke(cli, [name, "--help"]).output
    result = CliRunner().invoke(cli, [name, "--help-all" if has_all else "--help"], max_content_width=80)
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines if re.fullmatch(r"[A-Z].*:", line)]
    assert headings[0] == "Input and results:" and headings[-1] == "Run:"
    assert len(headings) == len(set(headings)) >= 5
    start = lines.index("  Examples:")
    examples = lines[start + 1 : start + 3]
    assert all(line.startswith(f"    foldcli {name} ") for line in examples)
    # each option is listed once, in some group
    listed = [
        word for line in lines[start:] if line.startswith("  -") for word in re.split(r"[ ,]+", line)[1:4]
    ]
    for parameter in command(name).params:
        if isinstance(parameter, click.Option):
            assert all(listed.count(spelling) == 1 for spelling in parameter.opts)


@pytest.mark.parametrize("name", ["fold", "screen", "predict", "search"])
def test_help_lists_the_common_options_that_exist(name: str) -> None:
    output = CliRunner().invoke(cli, [name, "--help"]).output.partition("Examples:")[2]
    every = {spelling for parameter in command(name).params for spelling in parameter.opts}
    listed = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", output, re.MULTILINE))
    assert listed == every & {*COMMON_OPTIONS, "--all", "--pairs"} | {"--help", "--help-all"}
    assert 10 <= len(listed) <= 23
    assert "--max-msa" not in output


@pytest.mark.parametrize("name", GROUPED)
def test_examples_of_the_help_are_valid(name: str) -> None:
    text = (command(name).help or "").partition("Examples:")[2]
    for line in text.strip().splitlines():
        _, own, *arguments = line.split()
        assert own == name
        command(name).make_context(name, arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_another_one_with_a_different_ending(name: str) -> None:
    """Refuse pairs such as --max-seq and --max-seqs in one command; a word after a hyphen may follow."""
    group = command(name)
    for each in group.commands.values() if isinstance(group, click.Group) else [group]:
        spellings = {spelling for parameter in each.params for spelling in parameter.opts}
        for short in spellings:
            similar = {
                long for long in spellings if long.startswith(short) and long[len(short) :][:1] not in "-"
            }
            assert not short.startswith("--") or not similar, (short, similar)


def test_cache_commands_use_the_default_cache_of_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    for subcommand in ("ls", "stats", "verify", "prune"):
        result = CliRunner().invoke(cli, ["cache", subcommand, "-q"])
        assert result.exit_code == 0, result.output
    FeatureCache(tmp_path / "features").load_or_make([parse_alignment(b">c\nWWWW\n")])
    assert CliRunner().invoke(cli, ["cache", "ls", "-q"]).output.splitlines()[1].split()[1] == "4"
