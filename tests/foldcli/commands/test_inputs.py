"""Tables and job files as queries of `foldcli search` and `fold`; unsupported jobs do not stop the others."""

import json
import sys
from pathlib import Path

import pytest

from tests.command_process import foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"


def boltz_job(sequence: str, entities: str = "") -> str:
    return f"version: 1\nsequences:\n  - protein:\n      id: A\n      sequence: {sequence}\n{entities}"


def test_all_formats_give_the_same_hits_and_unsupported_jobs_are_reported(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "a.csv").write_text(f"id,sequence\ntable,{GB1}\ncomplex,{GB1}:{GB1}\n")
    job = {"name": "json", "sequences": [{"proteinChain": {"sequence": GB1, "count": 1}}]}
    dna = {"dnaSequence": {"sequence": "ACGT", "count": 1}}
    mixed = {"name": "with_dna", "sequences": [*job["sequences"], dna]}
    (folder / "b.json").write_text(json.dumps([job, mixed]))
    (folder / "c.yaml").write_text(boltz_job(GB1))
    (folder / "d.yaml").write_text(boltz_job(GB1, "  - ligand: {id: B, ccd: ATP}\n"))
    (folder / "e.json").write_text("{")
    # the record of an earlier search is not a query
    (folder / "c.a3m.json").write_text("{}")
    out = tmp_path / "out"
    arguments = ("search", folder, root / "examples/demo.fasta", "--format", "a3m", "-o", out)
    result = foldcli(*arguments, env=environment)
    assert result.returncode == 5, result.stderr
    assert "Traceback" not in result.stderr
    alignments = {path.stem: path.read_text().partition("\n")[2] for path in out.glob("*.a3m")}
    # of a homodimer, after ColabFold's first line
    alignments["complex"] = alignments["complex"].removeprefix(">101\n")
    assert set(alignments) == {"table", "json", "c", "complex"}
    assert len(set(alignments.values())) == 1 and alignments["c"].count(">") >= 2
    failed = {
        each["target"]: each for each in map(json.loads, (out / "failures.jsonl").read_text().splitlines())
    }
    assert {each["exit_code"] for each in failed.values()} == {3}
    assert {name: each["error"].partition(" has ")[2].partition(":")[0] for name, each in failed.items()} == {
        "with_dna": "DNA",
        "d": "a ligand",
        str(folder / "e.json"): "",
    }
    assert f"{folder / 'b.json'}:1: 'with_dna' has DNA: only protein chains are supported" in result.stderr

    # a table of hits is only written if all queries can be searched
    refused = foldcli(
        "search", folder / "b.json", root / "examples/demo.fasta", "-o", tmp_path / "m8", env=environment
    )
    assert refused.returncode == 3 and not (tmp_path / "m8").exists()
    assert refused.stderr.startswith(f"foldcli: error: {folder / 'b.json'}:1: 'with_dna' has DNA: only")


@pytest.mark.slow
def test_job_on_standard_input_is_folded_and_complex_is_searched(
    root: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    command = ("fold", "-", "--db", root / "examples/demo.fasta", "--models", "3")
    command += ("--num-recycle", "0", "-o", tmp_path)
    result = foldcli(*command, env=environment, stdin=boltz_job(GB1[:20]))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "stdin/stdin.done.json").is_file()
    search = ("search", "-", root / "examples/demo.fasta", "--format")
    found = foldcli(*search, "a3m", "-o", "-", env=environment, stdin=f">pair\n{GB1}:{GB1}\n")
    assert found.returncode == 0 and found.stdout.startswith(f"#{len(GB1)}\t2\n>101\n{GB1}\n>")
    refused = foldcli(*search, "sto", "-o", "-", env=environment, stdin=f">pair\n{GB1}:{GB1}\n")
    assert refused.returncode == 3
    assert "standard input:1: 'pair' has 2 protein chains" in refused.stderr
