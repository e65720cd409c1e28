"""Searches of several databases: E-values of the whole, profiles of the first, hits one after the other."""

import random
from pathlib import Path

import numpy as np
import pytest

from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.searcher import JoinedSearcher
from msa.database.build import BuildSettings, build_database
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord, QueryProfile
from tests.command_process import run_foldcli

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
LETTERS = "ACDEFGHIKLMNPQRSTVWY"
QUERIES = [FastaRecord("q1", UBIQUITIN), FastaRecord("q2", UBIQUITIN[20:] + UBIQUITIN[:20])]


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Return two databases of different relatives, and one of both."""
    draw, folder = random.Random(5), tmp_path_factory.mktemp("databases")

    def records(name: str, count: int, changes: int) -> str:
        lines = []
        for number in range(count):
            letters = list(UBIQUITIN)
            for position in draw.sample(range(len(letters)), changes + number):
                letters[position] = draw.choice(LETTERS)
            lines.append(f">{name}{number}\n{''.join(letters)}\n")
        noise = ("".join(draw.choices(LETTERS, k=draw.randint(40, 200))) for _ in range(60))
        lines += [f">{name}_noise{number}\n{sequence}\n" for number, sequence in enumerate(noise)]
        return "".join(lines)

    texts = [records("uniref", 12, 10), records("env", 14, 24)]
    paths = []
    for name, text in (("a", texts[0]), ("b", texts[1]), ("both", "".join(texts))):
        (folder / f"{name}.fasta").write_text(text)
        build_database([folder / f"{name}.fasta"], folder / name, BuildSettings(threads=1))
        paths.append(str(folder / name))
    return paths[0], paths[1], paths[2]


def values(hits: Hits) -> dict[str, tuple[float, float]]:
    return {hit.id: (hit.evalue, hit.bits) for hit in hits}


def test_one_iteration_finds_what_a_search_of_both_finds(databases: tuple[str, str, str]) -> None:
    first, second, both = databases
    settings = SearchSettings(threads=1, evalue=1.0)
    joined = open_searcher(DatabaseSource(first, "cpu", (second,)))
    assert isinstance(joined, JoinedSearcher)
    whole = open_searcher(DatabaseSource(both, "cpu"))
    for (query, hits), (_, expected) in zip(
        joined.search_many(QUERIES, settings), whole.search_many(QUERIES, settings), strict=True
    ):
        assert values(hits) == values(expected) and len(hits) > 12
        in_second = [hit.id.startswith("env") for hit in hits]
        assert in_second == sorted(in_second) and True in in_second, query.id
        assert [hit.sequence for hit in hits if hit.id == "env0"]
        assert len(set(hits.targets.tolist())) == len(hits)


def test_profile_of_the_first_database_searches_the_second(databases: tuple[str, str, str]) -> None:
    first, second, _ = databases
    settings = SearchSettings(threads=1, evalue=0.1, num_iterations=3)
    joined = open_searcher(DatabaseSource(first, "cpu", (second,)))
    assert isinstance(joined, JoinedSearcher)
    profiles: list[ProfileRecord] = []

    def keep(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
        profiles.append(ProfileRecord(query.header, query.sequence, profile.profile, "test", of_family))

    progress: list[tuple[int, int | None]] = []
    results = joined.search_many(QUERIES, settings, lambda *pair: progress.append(pair), keep)
    found = [hits for _, hits in results]
    assert progress[-1][0] == progress[-1][1] and [a for a, _ in progress] == sorted(a for a, _ in progress)
    once = SearchSettings(threads=1, evalue=0.1)
    for hits, profile in zip(found, profiles, strict=True):
        assert profile.of_family
        ((_, expected),) = joined.searchers[1].search_many([profile], once)
        own = [hit.id for hit in hits if hit.id.startswith("env")]
        assert own == [hit.id for hit in expected] and len(own) > 5
        assert hits.evalues[-len(own) :].tolist() == expected.evalues.tolist()


def test_evalues_grow_with_the_residues_of_all(databases: tuple[str, str, str]) -> None:
    first, second, _ = databases
    alone, joined = DatabaseSource(first, "cpu").open(), DatabaseSource(first, "cpu", (second,)).open()
    other = joined.companions[0]
    assert joined.total_residues == alone.total_residues + other.total_residues
    assert joined.total_representatives == len(alone) + len(other)
    assert alone.checksums.items() < joined.checksums.items()
    assert joined.checksums != DatabaseSource(second, "cpu", (first,)).open().checksums
    assert np.array_equal(joined.length_sample.lengths, alone.length_sample.lengths)


@pytest.mark.slow
def test_commands_take_several_databases(
    databases: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    first, second, both = databases
    query = tmp_path / "q.fasta"
    query.write_text(f">q1\n{UBIQUITIN}\n")
    columns = "target,evalue,bits,taxid,taxname"
    several = ["search", query, "--db", first, "--db", second, "-o", "-", "--format-output", columns]
    result = run_foldcli(several)
    assert result.returncode == 0, result.stderr
    whole = run_foldcli(["search", query, both, "-o", "-", "--format-output", columns])
    assert sorted(result.stdout.splitlines()) == sorted(whole.stdout.splitlines())
    assert "\t0\t-" in result.stdout
    out = tmp_path / "alignments"
    result = run_foldcli(["search", query, "--db", first, "--db", second, "-o", out, "--format", "a3m"])
    assert result.returncode == 0, result.stderr
    rows = [line for line in (out / "q1.a3m").read_text().splitlines() if line.startswith(">")]
    kinds = [line.startswith(">env") for line in rows]
    assert kinds == sorted(kinds) and True in kinds
    assert (
        "already done"
        in run_foldcli(["search", query, "--db", first, "--db", second, "-o", out, "--format", "a3m"]).stderr
    )
    fold = ["fold", query, "--db", first, "--db", second, "-o", tmp_path / "out", "--dry-run"]
    result = run_foldcli([*fold, "--params", "template"])
    assert result.returncode == 0 and "with 1 more" in result.stdout, result.stderr
    for option in ("--exact", "--partial"):
        refused = run_foldcli([*several[:6], "-o", tmp_path / "x", option])
        assert refused.returncode == 2 and f"{option} takes one database" in refused.stderr


def test_cached_features_of_another_set_of_databases_are_not_used(
    databases: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    query, folder = tmp_path / "q.fasta", tmp_path / "features"
    query.write_text(f">q1\n{UBIQUITIN}\n")
    command = ["cache-features", query, "--cache", folder, "--device", "cpu", "--db", databases[0]]
    one, both, again = (run_foldcli([*command, *more]) for more in ([], ["--db", databases[1]], []))
    assert "q1: cached, 76 residues" in one.stderr and "q1: already cached" in again.stderr
    assert "q1: cached, 76 residues" in both.stderr, both.stderr
