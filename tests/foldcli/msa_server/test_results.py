"""The results of tickets are the alignments of `foldcli search`."""

import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gemmi
import pytest

from foldcli.msa_server.tickets import TicketJob
from foldcli.msa_server.worker import SearchStages
from foldcli.pipeline.prepare.template_stage import open_library
from foldcli.pipeline.search.searcher import LocalSearcher
from msa.engines.search_settings import FOLDING_SEARCH, SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from tests.command_process import run_foldcli
from tests.foldcli.exports.conftest import GB1, UBIQUITIN, Family
from tests.foldcli.msa_server.conftest import QUERY, Client, Starter

ENVIRONMENT = "bfd.mgnify30.metaeuk30.smag30.a3m"


def search(tmp_path: Path, cache: Path, query: str, databases: Sequence[Path], *options: str) -> list[str]:
    """Return the alignments of the records of a FASTA file, sorted by their names."""
    (tmp_path / "q.fasta").write_text(query)
    named = [argument for path in databases for argument in ("--db", path)]
    arguments = [tmp_path / "q.fasta", *named, "-o", tmp_path / "out", "--format", "a3m", *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOLDCLI_CACHE", str(cache))
        result = run_foldcli(["search", *arguments, "--device", "cpu"])
    assert result.returncode == 0, result.stderr
    return [path.read_text() for path in sorted((tmp_path / "out").glob("*.a3m"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "count", "options"),
    [("env", 2, ()), ("all", 1, ()), ("nofilter", 1, ("--max-seq-id", "1", "--qid", "0", "--diff", "0"))],
)
def test_alignments_are_those_of_a_search(
    client: Client,
    stages: SearchStages,
    databases: Sequence[Path],
    server_cache: Path,
    tmp_path: Path,
    mode: str,
    count: int,
    options: Sequence[str],
) -> None:
    settings = stages.stage(TicketJob("msa", mode, QUERY, "", 0.0)).settings
    assert settings.row_filter.active == (mode != "nofilter")
    files = client.results(mode=mode)
    expected = search(tmp_path, server_cache, QUERY, databases[:count], *options)
    assert files["uniref.a3m"] == "".join(f"{text}\0" for text in expected)
    assert ("envAAAA" in files["uniref.a3m"]) == (mode == "env")
    assert files["pdb70.m8"] == ""
    blocks = f">101\n{UBIQUITIN}\n\0>102\n{GB1}\n\0"
    assert files.get(ENVIRONMENT) == (blocks if mode == "env" else None)


def test_repeated_sequences_and_long_names_have_blocks_of_their_own(client: Client) -> None:
    files = client.results(f">7 first\n{UBIQUITIN.lower()}\n>8\n{UBIQUITIN}*\n", "all")
    first, second, end = files["uniref.a3m"].split("\0")
    assert first.startswith(f">7 first\n{UBIQUITIN}\n>") and second.startswith(f">8\n{UBIQUITIN}\n>")
    assert first.split("\n", 1)[1] == second.split("\n", 1)[1] and end == ""


@pytest.mark.parametrize("mode", ["pairgreedy", "paircomplete", ""])
def test_paired_rows_are_those_of_the_complex(
    client: Client,
    family: Family,
    server_cache: Path,
    tmp_path: Path,
    mode: str,
) -> None:
    files = client.results(mode=mode, kind="pair")
    first, second, end = (block.splitlines() for block in files["pair.a3m"].split("\0"))
    assert first[:2] == [">101", UBIQUITIN] and second[:2] == [">102", GB1] and not end
    pairs = list(zip(first[3::2], second[3::2], strict=True))
    assert len(pairs) == len(set(pairs)) == 6 and set(pairs) <= family.pairs
    strategy = "greedy" if mode == "pairgreedy" else "complete"
    query = f">complex\n{UBIQUITIN}:{GB1}\n"
    (text,) = search(tmp_path, server_cache, query, [family.path], "--pair-strategy", strategy)
    rows = text.splitlines()[3:]
    assert rows[1 : 2 * len(pairs) : 2] == [a + b for a, b in pairs]


def test_species_of_two_of_three_chains_are_paired_with_gaps(client: Client) -> None:
    query = f"{QUERY}>103\n{'ACDEFGHIKLMNPQRSTVWY' * 3}\n"
    rows = [
        block.splitlines() for block in client.results(query, "pairgreedy", "pair")["pair.a3m"].split("\0")
    ]
    assert len(rows[0]) == len(rows[1]) == len(rows[2]) == 14
    assert rows[2][2:] == [">DUMMY", "-" * 60] * 6
    complete = client.results(query, "paircomplete", "pair")["pair.a3m"]
    assert complete == query.replace("\n>", "\n\0>") + "\0"


@pytest.mark.slow
def test_templates_are_those_of_the_library(start: Starter, tmp_path: Path) -> None:
    client = start(tmp_path / "queue", templates=open_library(None, 1)).client
    files = client.results(f">101\n{UBIQUITIN}\n", "all")
    rows = [line.split("\t") for line in files["pdb70.m8"].splitlines()]
    assert rows[0][:2] == ["101", "3k9o_B"] and all(row[1].count("_") == 1 for row in rows)
    (tmp_path / "101.a3m").write_text(files["uniref.a3m"].rstrip("\0"))
    command = run_foldcli(["templates", tmp_path / "101.a3m", "-o", "-"])
    assert [line.split("\t")[1] for line in command.stdout.splitlines()] == [row[1] for row in rows]
    code, archive = client.call("/template/3K9O_B,1xt9_B,0abc_A")
    assert code == 200
    with tarfile.open(fileobj=io.BytesIO(archive)) as stored:
        stored.extractall(tmp_path, filter="data")
        assert stored.getnames() == ["pdb70_a3m.ffdata", "pdb70_a3m.ffindex", "1xt9.cif", "3k9o.cif"]
    data = (tmp_path / "pdb70_a3m.ffdata").read_text()
    for line in (tmp_path / "pdb70_a3m.ffindex").read_text().splitlines():
        name, offset, length = line.split("\t")
        record = data[int(offset) : int(offset) + int(length)]
        entry, chain = name.lower().split("_")[0], name.split("_")[1]
        text = (tmp_path / f"{entry}.cif").read_text()
        assert "ALA 'PEPTIDE LINKING'" in text
        polymer = gemmi.read_structure(str(tmp_path / f"{entry}.cif"))[0][chain].get_polymer()
        assert record == f">{name}\n{gemmi.one_letter_code(polymer.extract_sequence())}\n\0"
    assert client.call("/template/0abc_A") == (400, b"no such template\n")


def test_the_search_before_the_first_ticket_makes_a_profile(stages: SearchStages) -> None:
    found: list[tuple[SearchSettings, Hits]] = []

    class RecordingSearcher(LocalSearcher):
        def search_many(
            self, queries: Sequence[FastaRecord], settings: SearchSettings, *arguments: Any
        ) -> Iterator[tuple[FastaRecord, Hits]]:
            for query, hits in super().search_many(queries, settings, *arguments):
                found.append((settings, hits))
                yield query, hits

    first = RecordingSearcher(stages.first.database, stages.first.engine)
    replace(stages, first=first).compile()
    ((settings, hits),) = found
    assert settings.num_iterations == FOLDING_SEARCH.num_iterations
    # identical sequences would add nothing to the profile of the query
    assert hits[0].identity < 1 and hits[0].evalue <= settings.e_profile
