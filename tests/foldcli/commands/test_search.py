"""Tests of `foldcli search` in subprocesses: files, messages and exit codes."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command_process import run_foldcli

FOLDCLI = [sys.executable, "-m", "foldcli"]
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
DATABASE = f">ubq human\n{UBIQUITIN}\n>nedd8 human\n{NEDD8}\n>gb1\n{GB1}\n"
QUERIES = f">q1 first\n{UBIQUITIN}\n>q2\n{GB1}\n"
M8 = (
    "q1\tubq\t1.000\t76\t0\t0\t1\t76\t1\t76\t",
    "q1\tnedd8\t0.579\t76\t32\t0\t1\t76\t1\t76\t",
    "q2\tgb1\t1.000\t56\t0\t0\t1\t56\t1\t56\t",
)


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with db.fasta and queries.fasta in it."""
    (tmp_path / "db.fasta").write_text(DATABASE)
    (tmp_path / "queries.fasta").write_text(QUERIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDCLI_CACHE", str(cache))
    return tmp_path


def search(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return run_foldcli(["search", *arguments], input=stdin)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_table_has_the_hits_of_all_queries(folder: Path) -> None:
    result = search("queries.fasta", "db.fasta", "-o", "hits.m8")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    lines = (folder / "hits.m8").read_text().splitlines()
    assert len(lines) == 3
    for line, start in zip(lines, M8, strict=True):
        assert line.startswith(start) and len(line.split("\t")) == 12
    assert "q1: 2 hits" in result.stderr and "q2: 1 hits" in result.stderr
    assert files_in(folder) == {"db.fasta", "queries.fasta", "hits.m8"}


def test_built_database_standard_streams_and_columns(folder: Path) -> None:
    built = subprocess.run(
        [*FOLDCLI, "createdb", "db.fasta", "-o", "db", "-q"], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    columns = "theader,qaln,cigar"
    result = search("-", "db", "-o", "-", "--format-output", columns, "-q", stdin=QUERIES)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"ubq human\t{UBIQUITIN}\t76M", f"nedd8 human\t{UBIQUITIN}\t76M", f"gb1\t{GB1}\t56M",
    ]  # fmt: skip


def test_exact_occurrences_of_a_peptide_are_listed(folder: Path) -> None:
    (folder / "peptides.fasta").write_text(">p1\nKEGIPP\n>p2\nTTE\n>p3\nWWWW\n")
    result = search(
        "peptides.fasta", "db.fasta", "-o", "-", "--exact", "--format-output", "query,target,tstart",
        "--device", "cpu",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["p1\tubq\t33", "p1\tnedd8\t33", "p2\tgb1\t17"]
    assert "p3: 0 hits" in result.stderr


def test_members_of_clusters_are_found(folder: Path) -> None:
    (folder / "clusters.tsv").write_text("nedd8\tubq\nnedd8\tnedd8\ngb1\tgb1\n")
    built = subprocess.run(
        [*FOLDCLI, "createdb", "db.fasta", "--clusters", "clusters.tsv", "-o", "clustered", "-q"],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    expected = search("queries.fasta", "db.fasta", "-o", "-", "-q").stdout
    for iterations in ("1", "3"):
        command = ("queries.fasta", "clustered", "-o", "-", "-q", "--num-iterations", iterations)
        result = search(*command, "--max-seqs", "1")
        assert result.returncode == 0, result.stderr
        pairs = [line.split("\t")[:2] for line in result.stdout.splitlines()]
        assert pairs == [["q1", "ubq"], ["q1", "nedd8"], ["q2", "gb1"]]
        assert iterations == "3" or result.stdout == expected
    search("queries.fasta", "clustered", "-o", "out", "--format", "a3m", "--fast")
    search("queries.fasta", "db.fasta", "-o", "plain", "--format", "a3m", "--fast")
    assert (folder / "out/q1.a3m").read_bytes() == (folder / "plain/q1.a3m").read_bytes()


def test_several_inputs_and_a_folder_keep_their_order(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more/b.fasta").write_text(f">b\n{GB1}\n")
    (folder / "more/a.fa").write_text(f">a\n{GB1}\n")
    result = search("queries.fasta", "more", "db.fasta", "-o", "-", "--format-output", "query,target", "-q")
    assert result.stdout.splitlines() == ["q1\tubq", "q1\tnedd8", "q2\tgb1", "a\tgb1", "b\tgb1"]


def test_shards_partition_the_queries(folder: Path) -> None:
    whole = search("queries.fasta", "db.fasta", "-o", "-", "-q").stdout.splitlines()
    parts = [search("queries.fasta", "db.fasta", "-o", "-", "-q", "--shard", f"{i}/2").stdout for i in (1, 2)]
    assert [line for part in parts for line in part.splitlines()] == whole
    assert all(parts)


@pytest.mark.parametrize(
    ("kind", "start"), [("a3m", ">q1 first\n" + UBIQUITIN), ("sto", "# STOCKHOLM 1.0\n")]
)
def test_alignments_are_one_file_per_query(folder: Path, kind: str, start: str) -> None:
    result = search("queries.fasta", "db.fasta", "-o", "out", "--format", kind)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert files_in(folder / "out") == {f"q1.{kind}", f"q1.{kind}.json", f"q2.{kind}", f"q2.{kind}.json"}
    assert (folder / f"out/q1.{kind}").read_text().startswith(start)
    record = json.loads((folder / f"out/q1.{kind}.json").read_text())
    assert record["hits"] >= 2 and not record["capped"]
    # as deep as folding needs
    assert (record["evalue"], record["max_seqs"], record["num_iterations"]) == (0.1, 10_000, 3)
    assert record["alignment"] == {
        "max_seq_id": 0.95, "qid": 0, "qsc": None, "cov": 0, "diff": 3000,
        "identity_buckets": [0.2, 0.4, 0.6, 0.8, 1], "filter_min_enable": 1000,
    }  # fmt: skip


def test_fast_and_explicit_options_override_the_defaults_of_alignments(folder: Path) -> None:
    options = ["-e", "1e-5", "--max-seqs", "1", "--max-seq-id", "1", "--diff", "0", "--qid", "0"]
    result = search("queries.fasta", "db.fasta", "-o", "out", "--format", "a3m", "--fast", *options)
    assert result.returncode == 0, result.stderr
    record = json.loads((folder / "out/q1.a3m.json").read_text())
    assert (record["evalue"], record["max_seqs"], record["num_iterations"]) == (1e-5, 1, 1)
    assert record["alignment"]["identity_buckets"] == [] and record["alignment"]["diff"] == 0
    # the second hit is left out
    assert record["hits"] == 1 and record["capped"]
    refused = search("queries.fasta", "db.fasta", "-o", "-", "--fast", "--num-iterations", "2")
    assert refused.returncode == 2 and "--fast" in refused.stderr


def test_queries_with_more_hits_than_max_seqs_are_counted(folder: Path) -> None:
    result = search("queries.fasta", "db.fasta", "-o", "-", "--max-seqs", "1")
    assert result.returncode == 0, result.stderr
    assert [line[:6] for line in result.stdout.splitlines()] == [
        "q1\tubq",
        "q2\tgb1",
    ]
    assert "1 of 2 queries have more than 1 hits (--max-seqs)" in result.stderr
    assert "--max-seqs" not in search("queries.fasta", "db.fasta", "-o", "-", "--max-seqs", "2").stderr


def test_filters_remove_rows_of_alignments(folder: Path) -> None:
    def record(*options: str) -> dict[str, Any]:
        alignment = "-o", "out", "--format", "a3m", "-e", "1e-3", "--fast"
        result = search("queries.fasta", "db.fasta", *alignment, *options)
        assert result.returncode == 0, result.stderr
        return json.loads((folder / "out/q1.a3m.json").read_text())  # type: ignore[no-any-return]

    # the target that equals the query adds no row
    assert (record()["hits"], record()["rows"]) == (2, 1)
    thin = record("--qid", "0.7")
    assert (thin["hits"], thin["rows"]) == (2, 0)
    # requested criteria apply to small alignments, too
    assert thin["alignment"]["qid"] == 0.7 and thin["alignment"]["filter_min_enable"] == 0
    assert (folder / "out/q1.a3m").read_text() == f">q1 first\n{UBIQUITIN}\n"
    refused = search("queries.fasta", "db.fasta", "-o", "x.m8", "--diff", "5")
    assert refused.returncode == 2 and "tables keep all hits" in refused.stderr
    refused = search("queries.fasta", "db.fasta", "-o", "out", "--format", "a3m", "--qsc", "nan")
    assert refused.returncode == 2 and "--qsc is nan" in refused.stderr


def test_readers_read_the_written_alignments(folder: Path) -> None:
    from msa.alignments.files import read_alignment

    for kind in ("a3m", "sto"):
        options = "--format", kind, "-e", "1e-3", "--fast"
        assert search("queries.fasta", "db.fasta", "-o", "out", *options).returncode == 0
        alignment = read_alignment(folder / f"out/q1.{kind}")
        rows = [row.tobytes().decode() for row in alignment.letters]
        assert rows == [UBIQUITIN, NEDD8]


def test_finished_alignments_are_kept_until_settings_change(folder: Path) -> None:
    command = ("queries.fasta", "db.fasta", "-o", "out", "--format", "a3m", "-e", "1e-3", "--fast")
    assert search(*command).returncode == 0
    first = (folder / "out/q1.a3m").stat().st_ino
    again = search(*command)
    assert "q1: already done" in again.stderr and (folder / "out/q1.a3m").stat().st_ino == first
    (folder / "out/q2.a3m").unlink()
    assert "q2: 1 hits" in search(*command).stderr
    stricter = search(*command, "-e", "1e-40")
    assert "q1: 1 hits" in stricter.stderr
    assert "q1: 1 hits" in search(*command, "-e", "1e-40", "--overwrite").stderr


def test_single_alignment_goes_to_standard_output(folder: Path) -> None:
    (folder / "one.fasta").write_text(f">q\n{NEDD8}\n")
    result = search("one.fasta", "db.fasta", "-o", "-", "--format", "a3m", "-q")
    assert result.stdout.startswith(f">q\n{NEDD8}\n>ubq\t") and result.returncode == 0
    several = search("queries.fasta", "db.fasta", "-o", "-", "--format", "a3m")
    assert several.returncode == 2 and "takes one query, and there are 2" in several.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["queries.fasta", "-o", "x"], "Missing argument 'DB'"),
        (["queries.fasta", "db.fasta"], "Missing option '-o'"),
        (
            ["queries.fasta", "db.fasta", "-o", "x", "--format-output", "query,colour"],
            "unknown column 'colour'",
        ),
        (["queries.fasta", "db.fasta", "-o", "x", "--format", "a3m", "--format-output", "query"], "m8 only"),
        (
            ["queries.fasta", "db.fasta", "-o", "x", "--gap-open", "5"],
            "no E-value statistics for CONTEXT with gap costs 5/1",
        ),
        (
            ["queries.fasta", "db.fasta", "-o", "x", "--matrix", "PAM250"],
            "unknown matrix 'PAM250': choose from CONTEXT, BLOSUM62, BLOSUM45, ",
        ),
        (
            ["queries.fasta", "db.fasta", "-o", "x", "--matrix", "pam30", "--gap-open", "11"],
            "no E-value statistics for PAM30 with gap costs 11/1: choose from 5/2, ",
        ),
        (["queries.fasta", "db.fasta", "-o", "x", "--cov-mode", "3"], "cov-mode"),
        (
            ["queries.fasta", "db.fasta", "-o", "x", "--exact", "--format", "a3m"],
            "--exact cannot be combined with --format a3m",
        ),
        (["queries.fasta", "db.fasta", "-o", "x", "--shard", "3/2"], "shard"),
        (["queries.fasta", "db.fasta", "-o", "db.fasta"], "db.fasta exists; --overwrite replaces it"),
    ],
)
def test_usage_errors_are_refused(folder: Path, arguments: list[str], message: str) -> None:
    result = search(*arguments)
    assert result.returncode == 2
    assert message in result.stderr and "Traceback" not in result.stderr
    assert files_in(folder) == {"db.fasta", "queries.fasta"}
    assert (folder / "db.fasta").read_text() == DATABASE


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (">q\nMKV1L\n", "q.fasta:2:4: '1' is not a residue letter"),
        (">q\n", "q.fasta:1: no sequence"),
        (">q\nMKV\n>r\nM\n", "q.fasta:3: query 'r' has 1 residue: a search needs at least 2"),
        (">c\nMKV:M\n", "q.fasta:1: query 'c_B' has 1 residue"),
        ("MKVL\n", "q.fasta:1: not a FASTA file"),
        ("", "q.fasta: empty file"),
        ("\x00\x01\x02\x03", "q.fasta:1: not a FASTA file: binary data"),
    ],
)
def test_bad_queries_are_one_line(folder: Path, queries: str, message: str) -> None:
    (folder / "q.fasta").write_text(queries)
    result = search("q.fasta", "db.fasta", "-o", "x.m8")
    assert result.returncode == 3
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "x.m8").exists()


def test_missing_files_are_named(folder: Path) -> None:
    for arguments, name in ((("no.fasta", "db.fasta"), "no.fasta"), (("queries.fasta", "no_db"), "no_db")):
        result = search(*arguments, "-o", "x.m8")
        lines = result.stderr.splitlines()
        assert name in lines[0]
        if name == "no_db":
            assert result.returncode == 4 and lines[1:] == [
                "Build a database: foldcli createdb sequences.fasta -o DB"
            ]
        else:
            assert result.returncode == 3 and len(lines) == 1


def test_bad_query_does_not_stop_the_others(folder: Path) -> None:
    (folder / "mixed.fasta").write_text(f">short\nM\n{QUERIES}")
    result = search("mixed.fasta", "db.fasta", "-o", "out", "--format", "a3m")
    assert result.returncode == 5
    assert {"q1.a3m", "q2.a3m", "failures.jsonl"} <= files_in(folder / "out")
    (line,) = (folder / "out/failures.jsonl").read_text().splitlines()
    assert json.loads(line)["target"] == "short"


def test_unwritable_output_is_reported_before_the_search(folder: Path) -> None:
    (folder / "file").write_text("")
    for arguments in (("-o", "file/x.m8"), ("-o", "file/x", "--format", "a3m")):
        result = search("queries.fasta", "db.fasta", *arguments)
        assert result.returncode != 0 and "file" in result.stderr and "hits" not in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["m8", "a3m"])
def test_interrupt_leaves_no_partial_files(folder: Path, kind: str) -> None:
    # more queries than can be searched before the signal arrives
    (folder / "many.fasta").write_text("".join(f">q{i}\n{UBIQUITIN}\n" for i in range(20_000)))
    command = [
        *FOLDCLI,
        "search",
        "many.fasta",
        "db.fasta",
        "-o",
        "out",
        "--format",
        kind,
        "-e",
        "1e-3",
        "--num-iterations",
        "1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "q1: 2 hits" in line:  # the second line about hits; the first result has been written
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait() == 130
    assert "interrupted" in rest and "Traceback" not in rest
    assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    if kind == "m8":
        assert not (folder / "out").exists()
        # for the next run
        assert (folder / ".out.unfinished").read_text().startswith("q0\tubq\t")
    else:
        assert 1 <= len(list((folder / "out").glob("*.a3m"))) < 20_000
        # finished alignments are complete
        for path in (folder / "out").glob("*.a3m"):
            assert path.read_text().count(">") == 2
