"""`createdb --split`, `search --partial` and `merge-hits`, compared with a search of the whole database."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.command_process import run_foldcli

ROOT = Path(__file__).resolve().parents[3]
QUERIES = [ROOT / "examples" / name for name in ("ubiquitin.fasta", "myoglobin.fasta", "gb1.fasta")]
PARTS = 2


def foldcli(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
    result = run_foldcli(arguments)
    assert result.returncode == code, result.stderr
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example database, whole and in parts."""
    folder = tmp_path_factory.mktemp("split")
    foldcli("createdb", ROOT / "examples/demo.fasta", "-o", folder / "whole")
    made = foldcli("createdb", ROOT / "examples/demo.fasta", "--split", PARTS, "-o", folder / "split")
    assert "127 sequences" in made.stderr and "in 2 parts" in made.stderr
    return folder


def search_parts(
    folder: Path,
    name: str,
    *options: object,
    queries: Sequence[Path] = QUERIES,
    previous: Sequence[Path] = (),
) -> list[Path]:
    """Search each part, and return the files of hits."""
    files = [folder / f"{name}.{part}" for part in range(1, PARTS + 1)]
    earlier = [argument for path in previous for argument in ("--previous", path)]
    for part, file in enumerate(files, start=1):
        db = folder / f"split/{part}-of-{PARTS}"
        result = foldcli("search", *queries, db, "--partial", *earlier, "-o", file, *options)
        assert f"part {part} of {PARTS}" in result.stderr
    return files


def test_merged_table_equals_that_of_the_whole(folder: Path) -> None:
    options = ("-e", 10, "--max-seqs", 20, "--format-output", "query,theader,evalue,bits,cigar,tseq,qcov")
    foldcli("search", *QUERIES, folder / "whole", "-o", folder / "whole.m8", *options)
    files = search_parts(folder, "table", *options)
    merged = foldcli("merge-hits", *reversed(files), "-o", folder / "merged.m8")
    assert (folder / "merged.m8").read_bytes() == (folder / "whole.m8").read_bytes()
    assert "3 of 3 queries have more than 20 hits" in merged.stderr
    arguments = ("search", *QUERIES, folder / "split/1-of-2", "--partial", "-o", files[0])
    assert "already done" in foldcli(*arguments, *options).stderr
    assert "exists; --overwrite" in foldcli(*arguments, code=2).stderr
    assert "merged.m8 exists" in foldcli("merge-hits", *files, "-o", folder / "merged.m8", code=2).stderr


def test_merged_alignments_and_records_equal_those_of_the_whole(folder: Path) -> None:
    options = ("--format", "a3m", "--fast", "--max-seq-id", 0.9)
    foldcli("search", *QUERIES, folder / "whole", "-o", folder / "whole_a3m", *options)
    files = search_parts(folder, "alignments", *options)
    foldcli("merge-hits", *files, "-o", folder / "merged_a3m")
    names = sorted(path.name for path in (folder / "whole_a3m").iterdir())
    assert len(names) == 2 * len(QUERIES) == len(list((folder / "merged_a3m").iterdir()))
    for name in names:
        assert (folder / "merged_a3m" / name).read_bytes() == (folder / "whole_a3m" / name).read_bytes()
    # the records are those of the whole, so either command continues what the other has begun
    again = foldcli("merge-hits", *files, "-o", folder / "whole_a3m")
    assert again.stderr.count("already done") == len(QUERIES)


@pytest.mark.slow
def test_iterated_search_of_parts_equals_that_of_the_whole(folder: Path) -> None:
    options, queries = ("--num-iterations", 2, "--e-profile", 0.1), QUERIES[:2]
    foldcli("search", *queries, folder / "whole", "-o", folder / "iterated.m8", *options)
    first = search_parts(folder, "first", *options, queries=queries)
    incomplete = foldcli("merge-hits", *first, "-o", folder / "never", code=3)
    assert "hits of iteration 1 of 2: search all parts again with --previous" in incomplete.stderr
    second = search_parts(folder, "second", *options, queries=queries, previous=first)
    foldcli("merge-hits", *second, *first, "-o", folder / "merged_iterated.m8")
    assert (folder / "merged_iterated.m8").read_bytes() == (folder / "iterated.m8").read_bytes()
    arguments = ["search", *queries, folder / "split/1-of-2", "--partial", "-o", folder / "never"]
    for previous, more, code, reason in (
        (first[:1], options, 3, "no file has the hits of 2 in iteration 1"),
        (first, (*options, "-e", 1), 3, "not of this search: the search (settings) differs"),
        ([*first, *second], options, 2, "--previous has the hits of all iterations (--num-iterations 2)"),
    ):
        earlier = [argument for path in previous for argument in ("--previous", path)]
        assert reason in foldcli(*arguments, *earlier, *more, code=code).stderr
    assert not (folder / "never").exists()


def test_impossible_requests_are_refused_in_one_line(folder: Path) -> None:
    part = folder / "split/1-of-2"
    out = ["-o", folder / "never"]
    for arguments, code, reason in (
        (["search", QUERIES[0], part, "--previous", part, *out], 2, "--previous is for --partial"),
        (["search", QUERIES[0], part, "--partial", "-o", "-"], 2, "name it with -o"),
        (["search", QUERIES[0], folder / "whole", "--partial", *out], 3, "no part of a split database"),
        (["search", QUERIES[0], folder / "split", *out], 3, "search each part"),
        (["createdb", "--split", 2, "--info", part], 2, "--split needs"),
        (["createdb", QUERIES[0], "--split", 2, *out], 3, "2 parts need at least 2 sequences; there are 1"),
    ):
        text = foldcli(*arguments, code=code).stderr
        assert reason in text and "Traceback" not in text
        assert not (folder / "never").exists()


def test_parts_can_be_searched_and_described_alone(folder: Path) -> None:
    text = foldcli("search", QUERIES[0], folder / "split/1-of-2", "-o", "-").stdout
    whole = foldcli("search", QUERIES[0], folder / "whole", "-o", "-").stdout
    # with the E-values of the whole
    assert text and set(text.splitlines()) < set(whole.splitlines())
    assert (
        "1 of 2 of a database of 127 sequences"
        in foldcli("createdb", "--info", folder / "split/1-of-2").stdout
    )
    info = json.loads(foldcli("createdb", "--info", folder / "split/2-of-2", "--json").stdout)
    assert (info["format_version"], info["whole"]["sequences"]) == (3, 127)
    of_parts = json.loads(foldcli("createdb", "--info", folder / "split", "--json").stdout)
    assert len(of_parts) == PARTS and of_parts[1] == info
    table = foldcli("createdb", "--info", folder / "split").stdout
    assert [f"{part} of {PARTS} of a database" in table for part in range(1, PARTS + 2)] == [
        True,
        True,
        False,
    ]
    assert foldcli("createdb", "--verify", folder / "split").stderr.count("all checksums match") == PARTS
