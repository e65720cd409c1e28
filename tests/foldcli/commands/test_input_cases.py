"""The files of `tests/cases`, which other tools or earlier versions read wrongly without a word."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_process import run_foldcli

CASES = Path(__file__).resolve().parents[2] / "cases"
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
COMMANDS = {
    "search": ("search",),
    "fold": ("fold", "--dry-run"),
    "predict": ("predict", "--dry-run"),
    "cache-features": ("cache-features",),
}


def run(
    command: str, *inputs: Path, env: dict[str, str], out: Path, root: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command on input files; all results are written below `out`."""
    database = str(root / "examples/demo.fasta")
    arguments = {
        "search": (database, "--fast", "-o", "-"),
        "fold": ("--db", database, "-o", out),
        "predict": ("-o", out, "--cache", out / "features"),
        "cache-features": ("--cache", out / "features"),
    }
    return run_foldcli([*COMMANDS[command], *inputs, *arguments[command]], env=env)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dup2.sto", "dup2.sto:5: a second row has the name q"),
        ("two.sto", "two.sto:9: a second alignment begins here"),
        ("nul_two.a3m", "nul_two.a3m:5: a second alignment begins here, after a NUL byte"),
    ],
)
def test_all_commands_refuse_the_same_alignments(
    root: Path, environment: dict[str, str], tmp_path: Path, command: str, name: str, reason: str
) -> None:
    result = run(command, CASES / "alignments" / name, env=environment, out=tmp_path, root=root)
    assert result.returncode == 3, result.stderr
    assert reason in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["bom.sto", "sspred.a3m"])
def test_all_commands_read_the_same_alignments(
    root: Path, environment: dict[str, str], tmp_path: Path, command: str, name: str
) -> None:
    result = run(command, CASES / "alignments" / name, env=environment, out=tmp_path, root=root)
    assert result.returncode == 0, result.stderr
    if command in ("fold", "predict"):
        assert "    76 " in result.stdout and "1 to do" in result.stdout
    if command == "search":
        assert {line.split("\t")[0] for line in result.stdout.splitlines()} == {"q"}


@pytest.mark.parametrize("command", COMMANDS)
def test_spaces_in_colabfolds_line_still_make_a_complex(
    root: Path, environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    file = CASES / "alignments/het_spaces.a3m"
    result = run(command, file, env=environment, out=tmp_path, root=root)
    if command in ("search", "fold"):
        assert result.returncode == 3 and "alignment of a complex (2 chains" in result.stdout + result.stderr
    else:
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", ["search", "fold", "predict"])
def test_hidden_files_in_folders_are_skipped(
    root: Path, environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    result = run(command, CASES / "folders/qd", env=environment, out=tmp_path, root=root)
    assert "._A" not in result.stdout + result.stderr
    # as alignments, the three proteins of A.FASTA do not fit together
    assert result.returncode == (5 if command == "predict" else 0), result.stderr


def test_other_molecules_are_refused_by_name(root: Path, environment: dict[str, str], tmp_path: Path) -> None:
    result = run("fold", CASES / "text/boltz.fasta", env=environment, out=tmp_path, root=root)
    assert result.returncode == 5, result.stderr
    for text in ("'B|ccd' has a ligand", "'C|dna' has DNA", "'D|smiles' has a ligand", "./x.a3m"):
        assert text in result.stdout + result.stderr
    assert "1 to do, 3 invalid" in result.stdout and "A  " in result.stdout


def test_null_alignment_is_absent(root: Path, environment: dict[str, str], tmp_path: Path) -> None:
    result = run("fold", CASES / "text/msanull.yaml", env=environment, out=tmp_path, root=root)
    assert result.returncode == 0 and "1 to do" in result.stdout, result.stderr


def test_names_of_files_are_safe_and_said(root: Path, environment: dict[str, str], tmp_path: Path) -> None:
    queries = tmp_path / "q.fasta"
    ids = [
        "summary.tsv",
        "foldcli",
        "index.html",
        "failures.1-of-2.jsonl",
        "β-lactamase",
        "-x",
        "é.β.done.json",
    ]
    queries.write_text("".join(f">{name}\n{UBIQUITIN[: 30 + i]}\n" for i, name in enumerate(ids)))
    result = run("fold", queries, env=environment, out=tmp_path, root=root)
    assert result.returncode == 0, result.stderr
    names = [line.split()[0] for line in result.stdout.splitlines() if "to do" in line][:-1]
    assert names == sorted(
        ["summary_tsv", "foldcli_target", "index_html", "failures_1-of-2_jsonl", "beta-lactamase", "x",
         "e_beta_done_json"]
    )  # fmt: skip
    assert "names of files: summary.tsv → summary_tsv, " in result.stderr


def test_standard_output_is_utf8_whatever_the_locale(root: Path, environment: dict[str, str]) -> None:
    files = [str(CASES / "text" / name) for name in ("uni.fasta", "num.fasta")]
    arguments = ["search", *files, str(root / "examples/demo.fasta"), "-o", "-", "--fast"]
    result = subprocess.run(
        [sys.executable, "-m", "foldcli", *arguments],
        env=environment | {"PYTHONIOENCODING": "latin-1", "LC_ALL": "C"},
        cwd=root, capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert {line.split("\t")[0] for line in result.stdout.decode().splitlines()} == {
        "β-lactamase", "αβ", "sp|P12345|A_HUMAN", "tr|P12345|A_HUMAN", "gnl|ext|a"
    }  # fmt: skip


def test_residues_that_structures_lack_are_said_and_seeds_of_jobs_are_run(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    job = tmp_path / "job.json"
    job.write_text(
        '{"name": "odd", "modelSeeds": [3, 11], "sequences": [{"protein": {"id": "A", '
        f'"sequence": "{UBIQUITIN[:8]}U{UBIQUITIN[9:30]}BX*"}}}}]}}'
    )
    arguments = ["--db", root / "examples/demo.fasta", "--models", "3", "--num-recycle", "0", "-o", tmp_path]
    result = run_foldcli(["fold", job, *arguments, "--no-plots", "--no-report", "--fast"], env=environment)
    assert result.returncode == 0, result.stderr
    assert "odd: left out of the structure, which has the 20 standard amino acids only: U9, B31, X32" in (
        result.stderr
    )
    (first, second) = sorted(path.stem.rpartition("_")[2] for path in tmp_path.glob("odd/*unrelaxed*.pdb"))
    assert (first, second) == ("003", "011")
