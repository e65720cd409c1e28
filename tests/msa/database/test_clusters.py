"""Databases with clusters: the table, the order of sequences, and searches through representatives."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.base.errors import InputError
from msa.database.build import BuildSettings, build_database
from msa.database.clusters import read_clusters
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.database_search import SearchSettings, search, search_many

LETTERS = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
Records = list[tuple[str, str]]


def build(folder: Path, records: Records, table: str | None = None, mask: bool = False) -> TargetDatabase:
    folder.mkdir(exist_ok=True)
    (folder / "t.fasta").write_text("".join(f">{header}\n{sequence}\n" for header, sequence in records))
    clusters = None
    if table is not None:
        clusters = folder / "t.tsv"
        clusters.write_text(table)
    build_settings = BuildSettings(mask=mask, clusters=clusters, threads=1, block_bytes=512, overwrite=True)
    build_database([folder / "t.fasta"], folder / "db", build_settings)
    return TargetDatabase.open(folder / "db")


def random_records(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return [(f"s{k} of {count}", "".join(rng.choice(LETTERS, rng.integers(1, 60)))) for k in range(count)]


def table_of(representatives: list[int]) -> str:
    """Return a table in which sequence k is in the cluster of representatives[k]."""
    return "".join(f"s{representative}\ts{k}\n" for k, representative in enumerate(representatives))


@st.composite
def clusterings(draw: st.DrawFn) -> list[int]:
    """Draw the representative of each sequence."""
    count = draw(st.integers(1, 40))
    representatives = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    return [k if k in representatives else draw(st.sampled_from(representatives)) for k in range(count)]


@settings(deadline=None, max_examples=40)
@given(clusterings())
def test_representatives_come_first_and_list_their_members(
    tmp_path_factory: pytest.TempPathFactory, representatives: list[int]
) -> None:
    records = random_records(len(representatives), seed=len(representatives))
    database = build(tmp_path_factory.mktemp("db"), records, table_of(representatives))
    input_index = [int(database.id(index)[1:]) for index in range(len(database))]
    assert sorted(input_index) == list(range(len(representatives)))
    assert [database.sequence(index) for index in range(len(database))] == [
        records[k][1] for k in input_index
    ]
    assert [database.header(index) for index in range(len(database))] == [records[k][0] for k in input_index]
    count = database.representatives
    assert sorted(input_index[:count]) == sorted(set(representatives))
    for first, end in ((0, count), (count, len(representatives))):
        # sorted by length, then in input order
        keys = list(zip(database.arrays.lengths[first:end].tolist(), input_index[first:end], strict=True))
        assert keys == sorted(keys)
    for index in range(count):
        members = database.members(np.array([index])).tolist()
        assert members == sorted(members)
        inputs = {input_index[member] for member in members}
        assert inputs == {k for k, r in enumerate(representatives) if r == input_index[index] != k}
    assert sorted(database.members(np.arange(count)).tolist()) == list(range(count, len(representatives)))
    summary = database.manifest.clusters
    assert summary is not None and summary.residues == database.arrays.lengths[:count].sum()
    assert summary.largest == max(representatives.count(k) for k in representatives)
    database.verify()


def test_database_without_clusters_has_format_version_1(tmp_path: Path) -> None:
    database = build(tmp_path, random_records(5))
    assert database.representatives == len(database) == 5
    assert database.members(np.arange(5)).tolist() == []
    content = json.loads((tmp_path / "db/manifest.json").read_text())
    assert content["format_version"] == 1 and "clusters" not in content
    clustered = build(tmp_path, random_records(5), table_of([0, 0, 2, 3, 4]))
    assert json.loads((clustered.path / "manifest.json").read_text())["format_version"] == 2


def test_table_may_contain_accessions_instead_of_ids(tmp_path: Path) -> None:
    headers = ["sp|P0C2L1|A3X1_LOXLA Toxin", "tr|A0A146SKV9|A0A146SKV9_FUNHE", "lcl|foo x", "plain", "a|b|c"]
    records = [(header, "MKVL" * k) for k, header in enumerate(headers, start=1)]
    # a complete id takes precedence over its accession
    table = "P0C2L1\tfoo\r\nP0C2L1\tP0C2L1\r\nP0C2L1\tA0A146SKV9\r\na|b|c\tplain\r\na|b|c\ta|b|c"
    database = build(tmp_path, records, table)
    first = [database.header(index) for index in range(2)]
    assert first == [headers[0], headers[4]]
    assert {database.id(index) for index in database.members(np.array([1])).tolist()} == {"plain"}
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(table.encode()))
    assert read_clusters(tmp_path / "t.tsv.gz").count == 2


@pytest.mark.parametrize(
    ("table", "line", "reason"),
    [
        ("", None, "empty file"),
        ("s0\ts0\ns1\n", 2, "a representative's id, a tab and a member's"),
        ("s0\ts0\n\ns1\ts1\n", 2, "a representative's id, a tab and a member's"),
        ("s0\ts0\ns1\ts1\tx\n", 2, "a representative's id, a tab and a member's"),
        ("s0 x\ts0\n", 1, "a representative's id, a tab and a member's"),
        ("s0 s0\n", 1, "a representative's id, a tab and a member's"),
        ("\ts0\n", 1, "a representative's id, a tab and a member's"),
        ("s0\t\n", 1, "a representative's id, a tab and a member's"),
        ("s0\ts0\ns0\ts1\ns0\ts2\ns0\ts1\n", 4, "'s1' is already listed as a member"),
        ("s0\ts0\ns1\ts2\ns1\ts1\ns1\ts2\n", 4, "'s2' is already listed as a member"),
        ("s0\ts0\ns0\ts1\ns1\ts2\n", 3, "the representative 's1' is not a member of its own cluster"),
        ("s0\ts0\nx\ts1\ns0\ts2\n", 2, "the representative 'x' is not a member of its own cluster"),
        ("s0\ts0\ns0\ts1\ns0\ts9\ns0\ts2\n", 3, "no sequence of the FASTA input has the id 's9'"),
        ("s0\ts0\ns0\ts1\n", None, "no line lists the sequence 's2 of 3' as a member"),
    ],
)
def test_invalid_table_is_refused(tmp_path: Path, table: str, line: int | None, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        build(tmp_path, random_records(3), table)
    assert (error.value.path, error.value.line) == (str(tmp_path / "t.tsv"), line)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "db").exists() and not list(tmp_path.glob(".db*"))


def test_duplicate_ids_in_the_input_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="several sequences of the FASTA input have the id 's0'"):
        build(tmp_path, [*random_records(2), ("s0 again", "MKVL")], "s1\ts1\ns0\ts0\n")


def test_damaged_cluster_files_are_reported(tmp_path: Path) -> None:
    database = build(tmp_path, random_records(9), table_of([0] * 5 + [5] * 4))
    path = database.path / "members.i64"
    members = np.fromfile(path, "<i8")
    for wrong, reason in ((members[::-1], "SHA-256"), (members + 1, "not in"), (members * 0 + 8, "missing")):
        wrong.tofile(path)
        with pytest.raises(InputError, match=rf"members\.i64: damaged.*{reason}"):
            TargetDatabase.open(database.path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"members\.i64: damaged database: truncated"):
        TargetDatabase.open(database.path)
    manifest = database.path / "manifest.json"
    content = json.loads(manifest.read_text())
    del content["manifest_sha256"]
    manifest.write_text(json.dumps(content | {"clusters": content["clusters"] | {"representatives": 0}}))
    with pytest.raises(InputError, match="0 representatives of 9 sequences"):
        TargetDatabase.open(database.path)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[FastaRecord, Records, Path]:
    """Return a query, sequences (close relatives, a distant one and noise), and a folder."""
    rng = np.random.default_rng(5)
    query = rng.choice(LETTERS, 120)
    conserved = rng.random(120) < 0.5
    changed = [np.where(~conserved, rng.choice(LETTERS, 120), query) for _ in range(12)]
    changed += [np.where(conserved & (rng.random(120) < 0.62), query, rng.choice(LETTERS, 120))]
    changed += [rng.choice(LETTERS, 150) for _ in range(300)]
    records = [(f"s{k}", "".join(residues)) for k, residues in enumerate(changed)]
    return FastaRecord("query", "".join(query)), records, tmp_path_factory.mktemp("family")


def summaries(hits: list) -> list[tuple]:  # type: ignore[type-arg]
    return [
        (
            hit.id,
            hit.alignment.score,
            hit.evalue,
            hit.alignment.cigar,
            hit.alignment.target_start,
            hit.sequence,
        )
        for hit in hits
    ]


def family_representatives(count: int) -> list[int]:
    """Return representatives: s3 for close relatives and some noise, s20 for the distant one."""
    representatives = list(range(count))
    for k in (*range(12), *range(100, 140)):
        representatives[k] = 3
    representatives[12] = 20
    return representatives


def test_search_aligns_members_of_the_representatives_found(
    family: tuple[FastaRecord, Records, Path],
) -> None:
    query, records, folder = family
    # align all members, whatever their gapless score
    everything = SearchSettings(evalue=5, max_seqs=len(records), min_ungapped_score=0)
    representatives = family_representatives(len(records))
    plain = build(folder / "plain", records)
    plain_hits = summaries(search(query, plain, everything))
    plain_ids = {name for name, *_ in plain_hits}
    expected = [hit for hit in plain_hits if f"s{representatives[int(hit[0][1:])]}" in plain_ids]
    clustered = build(folder / "clustered", records, table_of(representatives))
    hits = summaries(search(query, clustered, everything))
    # hits with equal E-value and score are in database order, which differs
    assert sorted(hits) == sorted(expected) and [hit[2] for hit in hits] == sorted(hit[2] for hit in hits)
    assert sum(name in {f"s{k}" for k in range(12)} for name, *_ in hits) == 12
    # neither a representative nor a member above the E-value limit is reported
    strict = summaries(search(query, clustered, SearchSettings(evalue=1e-3)))
    assert strict and max(hit[2] for hit in strict) <= 1e-3 and {hit[0] for hit in strict} <= plain_ids
    # one target passes the filter and adds 11 members
    assert len(search(query, clustered, SearchSettings(max_seqs=1))) == 12


def test_iterations_use_cluster_members_for_the_profile(family: tuple[FastaRecord, Records, Path]) -> None:
    query, records, folder = family
    representatives = family_representatives(len(records))
    representatives[12] = 12
    plain = build(folder / "plain", records)
    clustered = build(folder / "iterated", records, table_of(representatives))
    unrelated = FastaRecord("unrelated", "MKWVTFISLLFLFSSAYSRGVFRRDAHKSEVAHRFK")
    search_settings = SearchSettings(num_iterations=3, max_seqs=len(records))
    (_, unrelated_hits), (_, hits) = search_many([unrelated, query], clustered, search_settings)
    assert len(unrelated_hits) == 0
    # the profile is made from all relatives and finds the distant one with the same alignment; E-values
    # differ by a factor, because their statistics are fitted to representatives
    assert "s12" in [hit.id for hit in hits]
    got, expected = sorted(summaries(hits)), sorted(summaries(search(query, plain, search_settings)))
    assert [(hit[:2], hit[3:]) for hit in got] == [(hit[:2], hit[3:]) for hit in expected]
    ratios = [clustered_hit[2] / plain_hit[2] for clustered_hit, plain_hit in zip(got, expected, strict=True)]
    assert 0.5 < ratios[0] < 2 and ratios == pytest.approx([ratios[0]] * len(ratios))


def test_progress_ends_at_the_number_of_sequences(family: tuple[FastaRecord, Records, Path]) -> None:
    query, records, folder = family
    clustered = build(folder / "progress", records, table_of(family_representatives(len(records))))
    seen: list[tuple[int, int | None]] = []
    search(query, clustered, progress=lambda done, total: seen.append((done, total)))
    # the engine's last report, which counts representatives, and the final one of the search
    assert seen[-2:] == [(len(records), len(records))] * 2 and seen == sorted(seen)
