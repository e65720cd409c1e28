"""Clients of other programs work with the server unchanged.

Each program needs libraries of its own releases, so that its Python is named by an environment variable, such
as FOLDCLI_PYTHON_BOLTZ; without, the test is skipped.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from foldcli.pipeline.prepare.template_stage import open_library
from tests.foldcli.exports.conftest import GB1, UBIQUITIN
from tests.foldcli.msa_server.conftest import QUERY, Starter

SCRIPT = Path(__file__).parent / "run_client.py"
PROTENIX_QUERY = f">query_0\n{UBIQUITIN}\n>query_1\n{GB1}\n"


def rows(text: str) -> list[str]:
    """Return the rows of an alignment that are no queries, and no gaps, without their headers."""
    return [line for line in text.splitlines()[1::2] if line not in (UBIQUITIN, GB1) and set(line) != {"-"}]


@pytest.mark.parametrize("program", ["alphafold3", "boltz", "chai", "colabfold", "openfold3", "protenix"])
def test_client(start: Starter, tmp_path: Path, program: str) -> None:
    variable = f"FOLDCLI_PYTHON_{program.upper()}"
    if (python := os.environ.get(variable)) is None:
        pytest.skip(f"{variable} does not name a Python that has {program}")
    client = start(tmp_path / "queue", templates=open_library(None, 1)).client
    # clients wait for seconds or a minute, unless tickets are complete when they are submitted
    query = PROTENIX_QUERY if program == "protenix" else QUERY
    files = client.results(query)
    single = [rows(block) for block in files["uniref.a3m"].split("\0")[:2]]
    pairs = client.results(query, "pairgreedy-env", "pair")["pair.a3m"]
    for other in (f">101\n{UBIQUITIN}\n", *PROTENIX_QUERY.split(">")[1:]):
        client.results(f">{other.removeprefix('>')}")
    client.results(query, "pairgreedy", "pair")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, str(SCRIPT), program, client.url, str(tmp_path), UBIQUITIN, GB1]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout)
    assert [rows(text) for text in found["single"]] == single and all(single)
    assert [rows(text) for text in found["paired"]] == [rows(block) for block in pairs.split("\0")[:2]]
    hits = [line.split("\t") for line in files["pdb70.m8"].splitlines()]
    entries = sorted({f"{hit[1].split('_')[0]}.cif" for hit in hits if hit[0] in ("101", "query_0")})
    assert found.get("templates", entries) == entries and entries
