"""Tests of options of predictions for design and for other states, in processes."""

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.command_process import command_environment, run_foldcli
from tests.networks import tiny_parameters

QUICK = (
    "--models",
    "3",
    "--num-recycle",
    "0",
    "--threads",
    "1",
    "--no-plots",
    "--device",
    "cpu",
)
A3M = ">query\nMKVLAAGIV\n>hit 1\nMKV-AAGiIV\n>hit 2\n--VLSAGIV\n"


class Runs:
    """Runs of `foldcli predict` on an alignment of nine residues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = command_environment(folder / "cache", FOLDCLI_PARAMS=tiny_parameters())
        (folder / "t.a3m").write_text(A3M)

    def __call__(self, out: str, *options: object, code: int = 0, report: bool = False) -> str:
        quick = QUICK if report else (*QUICK, "--no-report")
        arguments = ["predict", self.folder / "t.a3m", *quick, "-o", self.folder / out, *options]
        result = run_foldcli(arguments, env=self.environment)
        assert result.returncode == code, result.stderr
        assert "Traceback" not in result.stderr
        return str(result.stderr)

    def structure(self, out: str) -> str:
        (path,) = (self.folder / out / "t").glob("*_unrelaxed_rank_001_*.pdb")
        return "\n".join(line for line in path.read_text().splitlines() if line.startswith("ATOM"))

    def settings(self, out: str) -> dict:
        return json.loads((self.folder / out / "t/t.done.json").read_text())["settings"]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.mark.slow
def test_each_option_changes_the_structure_and_the_settings(runs: Runs) -> None:
    runs("plain")
    plain, settings = runs.structure("plain"), runs.settings("plain")
    (model,) = (runs.folder / "plain/t").glob("*_unrelaxed_rank_001_*.pdb")
    guesses = runs.folder / "guesses"
    guesses.mkdir()
    shutil.copy(model, guesses / "t.pdb")
    runs("guess", "--initial-guess", guesses)
    assert runs.structure("guess") != plain
    assert runs.settings("guess").keys() - settings.keys() == {"initial_guess"}
    runs("cyclic", "--cyclic", "A")
    assert runs.structure("cyclic") != plain and runs.settings("cyclic")["predict"]["cyclic"] == ["A"]
    runs("dropout", "--dropout")
    assert runs.structure("dropout") != plain and runs.settings("dropout")["predict"]["dropout"] is True
    runs("mask", "--msa-mask", "0.3")
    assert runs.structure("mask") != plain and runs.settings("mask")["predict"]["msa_mask"] == 0.3
    assert "made with other settings (initial_guess" in runs("plain", "--initial-guess", model, code=3)


@pytest.mark.slow
def test_states_come_from_clusters_of_rows(runs: Runs) -> None:
    rng = random.Random(0)
    rows = ["MKVLAAGIVWYRDE"]
    for center in ("MKVLAAGIVWYRDE", "PQSTNHCCFFGGHH"):
        for _ in range(12):
            letters = list(center)
            letters[rng.randrange(14)] = rng.choice("ACDEFGHIKLMNPQRSTVWY")
            rows.append("".join(letters))
    rows = list(dict.fromkeys(rows))
    (runs.folder / "t.a3m").write_text("".join(f">{n}\n{row}\n" for n, row in enumerate(rows)))
    error = runs("states", "--msa-cluster", "--num-seeds", "4", report=True)
    assert "t: 2 clusters of rows within" in error
    done = json.loads((runs.folder / "states/t/t.done.json").read_text())
    sizes = done["facts"]["row_clusters"]["rows"]
    assert len(sizes) == 2 and sizes[0] >= sizes[1] >= 8
    tags = [tag for state in done["facts"]["states"] for tag in state["models"]]
    assert sorted(tags) == sorted(model["tag"] for model in done["ranking"]) and len(tags) == 4
    assert all(state["medoid"] in state["models"] for state in done["facts"]["states"])
    plddt = {model["tag"][-3:]: model["plddt"] for model in done["ranking"]}
    assert len({plddt[seed] for seed in ("000", "001", "002")}) == 3
    page = (runs.folder / "states/t/t.html").read_text()
    assert "Groups of models with a TM-score" in page and f"cluster 2 ({sizes[1]} rows)" in page
    assert "already done" in runs("states", "--msa-cluster", "--num-seeds", "4", report=True)


def test_wrong_values_are_refused_in_one_line(runs: Runs) -> None:
    assert "--cyclic B: the chains of t are A" in runs("a", "--cyclic", "B", code=3)
    assert "expected ids of chains such as A,C" in runs("a", "--cyclic", "A,", code=2)
    assert "no structure of target t for --initial-guess" in runs("a", "--initial-guess", runs.folder, code=3)
    assert "is not in the range" in runs("a", "--msa-mask", "1", code=2)
    assert "does not exist" in runs("a", "--initial-guess", runs.folder / "x.pdb", code=2)
    (runs.folder / "x.pdb").write_text("END\n")
    unreadable = runs("a", "--initial-guess", runs.folder / "x.pdb", code=3)
    assert "x.pdb: neither an mmCIF nor a PDB file" in unreadable
    for option in (
        ("--msa-cluster",),
        ("--dropout",),
        ("--cyclic", "A"),
        ("--msa-mask", "0.2"),
        ("--initial-guess", runs.folder),
    ):
        arguments = [
            "predict",
            runs.folder / "t.a3m",
            "-o",
            runs.folder / "a",
            "--params",
            "template",
            *option,
        ]
        refused = run_foldcli(arguments, env=runs.environment)
        assert refused.returncode == 2
        assert f"{option[0]}: only networks have it" in refused.stderr
