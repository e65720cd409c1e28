"""Tests of sessions: the results of the commands, progress, and errors."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import foldcli
from foldcli.errors import SomeTargetsFailed
from foldcli.logs import logger
from msa.base.errors import InputError
from tests.command_process import run_foldcli
from tests.networks import tiny_parameters

GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
TINY = {
    "device": "cpu",
    "models": (3,),
    "num_recycle": 0,
    "max_msa": "512:64",
    "no_plots": True,
    "threads": 2,
}


@pytest.fixture(autouse=True)
def clean_process(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path_factory.mktemp("cache")))
    # as in a process of its own: commands that other tests run in this one have set up logging
    monkeypatch.setattr(logger, "handlers", [])


@pytest.fixture
def session(root: Path) -> Iterator[foldcli.Session]:
    options = TINY | {"params": tiny_parameters(), "no_report": True, "no_plots": True}
    with foldcli.Session(root / "examples/demo.fasta", **options) as opened:
        yield opened


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, foldcli; dir(foldcli); print({'click', 'numpy', 'torch', 'gemmi'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_public_names_exist() -> None:
    assert [name for name in foldcli.__all__ if getattr(foldcli, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'foldd'"):
        foldcli.foldd  # noqa: B018


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_model": 1}, TypeError, "no option 'num_model'"),
        ({"out": "x"}, TypeError, "no option 'out'"),
        ({"num_models": 6}, ValueError, "6 is not in the range"),
        ({"device": "tpu"}, ValueError, "expected auto, cpu"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        foldcli.Session(**options)  # type: ignore[arg-type]


def test_names_with_white_space_are_refused() -> None:
    with pytest.raises(ValueError, match="not the name of a target: 'a b'"):
        foldcli.Session().fold({"a b": GB1})


@pytest.mark.parametrize("sequence", [None, float("nan"), [GB1], f">gb1\n{GB1}"])
def test_other_values_than_sequences_are_refused(sequence: object) -> None:
    with foldcli.Session() as session:
        for call in (session.search, session.fold):
            with pytest.raises(ValueError, match="'gb1' has no sequence but "):
                call({"gb1": sequence})  # type: ignore[dict-item]


def test_options_with_several_values_may_be_arrays(tmp_path: Path) -> None:
    for models in (np.array([2, 1]), range(2, 0, -1), [2, 1], "2,1"):
        session = foldcli.Session(models=models)
        assert session._values(["-"], tmp_path)[0]["models"] == (2, 1)


def test_failed_searches_have_the_names_of_the_targets(root: Path) -> None:
    with (
        foldcli.Session(root / "examples/demo.fasta", device="cpu", threads=1) as session,
        pytest.raises(SomeTargetsFailed) as failure,
    ):
        session.search({"a/b": "MK?LV", "gb1": GB1, "x" * 99: "MK-LV", "short": "M"})
    assert [alignment.query for alignment in failure.value.results] == [GB1]
    assert set(failure.value.failed) == {"a/b", "x" * 99, "short"}


def test_names_that_differ_in_unsafe_characters_are_different_targets(root: Path) -> None:
    with foldcli.Session(root / "examples/demo.fasta", device="cpu", threads=1) as session:
        found = session.search({"a/b": GB1, "a_b": UBIQUITIN, "a_b_2": GB1[1:]})
    assert [alignment.query for alignment in found] == [GB1, UBIQUITIN, GB1[1:]]


def test_names_may_be_long_but_are_text(root: Path) -> None:
    with foldcli.Session(root / "examples/demo.fasta", device="cpu", threads=1) as session:
        found = session.search({"x" * 300: GB1, "x" * 299: UBIQUITIN})
        with pytest.raises(ValueError, match="not the name of a target: 7"):
            session.search({7: GB1})  # type: ignore[dict-item]
    assert [alignment.query for alignment in found] == [GB1, UBIQUITIN]


def test_a_shard_has_the_results_of_its_targets(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    targets = {"z": GB1, "a": GB1[:50], "k": GB1[1:]}
    options = {"params": "template", "no_plots": True, "no_report": True, "device": "cpu", "threads": 1}
    with foldcli.Session(root / "examples/demo.fasta", shard="1/2", **options) as session:
        found = session.search(targets)
        predictions = session.fold(targets)
    with (
        foldcli.Session(root / "examples/demo.fasta", shard="2/2", **options) as session,
        caplog.at_level("INFO"),
    ):
        assert not session.search({"z": GB1})
    assert caplog.text.count("shard 2/2 has no targets") == 1
    # in the order of the input
    assert [alignment.query for alignment in found] == [GB1, GB1[:50]]
    assert [prediction.target for prediction in predictions] == ["z", "a"]


def test_options_that_exclude_each_other_are_refused() -> None:
    for options, message in (
        ({"rna_db": "rna"}, "--rna-db is for all-atom networks"),
        ({"params": "template", "msa_mask": 0.2}, "--msa-mask: only networks have it"),
    ):
        with pytest.raises(ValueError, match=message):
            foldcli.Session(**options).fold({"gb1": GB1})


@pytest.mark.slow
@pytest.mark.parametrize("params", ["tiny", pytest.param("compact", marks=pytest.mark.long)])
def test_results_are_those_of_the_commands(root: Path, tmp_path: Path, params: str) -> None:
    db, query = root / "examples/demo.fasta", root / "examples/gb1.fasta"
    options = ["--device", "cpu", "--threads", "2", "--db", str(db)]
    params = tiny_parameters() if params == "tiny" else params
    network = ["--params", params, "--num-models", "1", "--num-recycle", "1"]
    network += ["--no-plots", "--no-report"]
    arguments = [query, *options, *network, "-o", tmp_path / "command"]
    assert run_foldcli(["fold", *arguments]).returncode == 0
    searched = ["search", query, *options, "-o", tmp_path / "searched", "--format", "a3m"]
    assert run_foldcli(searched).returncode == 0
    settings = {"params": params, "num_models": 1, "num_recycle": 1, "no_plots": True, "no_report": True}
    with foldcli.Session(db, **settings, device="cpu", threads=2) as session:
        (alignment,) = session.search(query, tmp_path / "api_searched")
        (prediction,) = session.fold([query], tmp_path / "api")
        again = session.fold({"gb1": GB1}, tmp_path / "again")
    for command, api in (("command", "api"), ("searched", "api_searched")):
        paths = [path for path in (tmp_path / command).rglob("*") if path.is_file()]
        compared = [path for path in paths if path.suffix in (".a3m", ".m8", ".pdb", ".cif", ".tsv")]
        compared += [path for path in paths if "_scores_" in path.name]
        compared = [path for path in compared if path.name != "summary.tsv"]  # has times
        assert compared
        for path in compared:
            assert path.read_bytes() == (tmp_path / api / path.relative_to(tmp_path / command)).read_bytes()
    assert alignment.query == GB1
    assert len(alignment) > 1
    # the second prediction used the networks of the first
    assert again[0].path.read_bytes() == prediction.path.read_bytes()


@pytest.mark.slow
def test_progress_can_cancel_and_the_next_call_continues(session: foldcli.Session, tmp_path: Path) -> None:
    def cancel(done: int, total: int, text: str) -> None:
        if done == 1:
            raise TimeoutError(text)

    targets = {"gb1": GB1, "ubiquitin": UBIQUITIN}
    with pytest.raises(TimeoutError, match="model_3"):
        session.fold(targets, tmp_path, cancel)
    steps: list[tuple[int, int]] = []
    predictions = session.fold(targets, tmp_path, lambda done, total, text: steps.append((done, total)))
    assert [prediction.target for prediction in predictions] == ["gb1", "ubiquitin"]
    assert steps[-1] == (2, 2)


@pytest.mark.slow
def test_errors_are_typed(session: foldcli.Session, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"bad\.fasta:2:3: .* is not a residue letter"):
        session.fold({"bad": "MK?LV"})
    with pytest.raises(SomeTargetsFailed) as failure:
        session.fold({"bad": "MK?LV", "gb1": GB1})
    assert [prediction.target for prediction in failure.value.results] == ["gb1"]
    assert list(failure.value.failed) == ["bad"]
    with pytest.raises(FileNotFoundError, match=r"nowhere\.fasta"):
        session.fold("nowhere.fasta")
    assert capfd.readouterr() == ("", "")
