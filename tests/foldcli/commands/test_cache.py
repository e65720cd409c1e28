"""`foldcli cache` as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from features.cache.cache import FeatureCache, cache_key
from features.cache.entry import list_entries
from msa.alignments.files import parse_alignment, read_alignment
from tests.command_process import run_foldcli


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_foldcli(["cache", *arguments])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Create three entries, 1000 seconds apart: from a.a3m, from b.a3m, and without a source file."""
    root = tmp_path / "cache"
    for number, name in enumerate("ab"):
        file = tmp_path / f"{name}.a3m"
        file.write_text(f">{name} described\n{'MKVLGA' * (number + 1)}\n>hit\n{'MK-LGA' * (number + 1)}\n")
        FeatureCache(root).load_or_make([read_alignment(file)])
    FeatureCache(root).load_or_make([parse_alignment(b">c\nWWWW\n")])
    for age, name in ((3000, "a"), (2000, "b"), (1000, "c")):
        path = entry_of(root, name)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    return root


def entry_of(cache: Path, name: str) -> Path:
    """Return the path of the entry of a, b or c."""
    file = cache.parent / f"{name}.a3m"
    alignment = read_alignment(file) if file.exists() else parse_alignment(b">c\nWWWW\n")
    return FeatureCache(cache).path(cache_key([alignment]))


def names(cache: Path) -> set[str]:
    """Return the names of all entries' queries."""
    return {entry.metadata["name"] for entry in list_entries(cache)}


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def test_ls_lists_every_entry(cache: Path) -> None:
    result = run("ls", cache)
    assert (result.returncode, result.stderr) == (0, "")
    header, *entries = result.stdout.splitlines()
    assert header.split() == ["key", "residues", "rows", "bytes", "written", "name", "and", "sources"]
    # numbers end where their headings end, and texts begin where theirs begin
    for entry in entries:
        for heading in ("residues", "rows", "bytes"):
            end = header.index(heading) + len(heading)
            assert entry[end - 1].isdigit() and entry[end] == " "
        assert entry[header.index("written") :].startswith("2")
        assert entry[header.index("name") - 1] == " " and entry[header.index("name")] in "abc"
    lines = {line.split("Z  ")[1]: line.split() for line in entries}
    assert lines.keys() == {
        f"a described {cache.parent / 'a.a3m'}",
        f"b described {cache.parent / 'b.a3m'}",
        "c ?",
    }
    path = entry_of(cache, "b")
    b = lines[f"b described {cache.parent / 'b.a3m'}"]
    assert b[:4] == [path.stem[:12], "12", "2", str(path.stat().st_size)]


def test_ls_as_json_has_all_values(cache: Path) -> None:
    entries = json.loads(run("ls", cache, "--json").stdout)
    path = entry_of(cache, "a")
    (a,) = (entry for entry in entries if entry["key"] == path.stem)
    assert a.pop("written").endswith("Z")
    assert a == {
        "key": path.stem,
        "path": str(path),
        "name": "a described",
        "residues": 6,
        "rows": 2,
        "bytes": path.stat().st_size,
        "sources": [str(cache.parent / "a.a3m")],
        "problem": None,
    }
    assert [entry["key"] for entry in entries] == sorted(entry["key"] for entry in entries)


def test_ls_shows_damaged_entries(cache: Path) -> None:
    entry_of(cache, "a").write_bytes(b"")
    result = run("ls", cache)
    assert result.returncode == 0
    assert "damaged cache entry (truncated)" in result.stdout
    assert len(result.stdout.splitlines()) == 1 + 3


def test_stats_counts_entries(cache: Path) -> None:
    (cache.parent / "a.a3m").unlink()
    size = sum(path.stat().st_size for path in cache.glob("??/*"))
    statistics = json.loads(run("stats", cache, "--json").stdout)
    assert statistics.pop("oldest") < statistics.pop("newest")
    assert statistics == {
        "entries": 3,
        "bytes": size,
        "residues": 22,
        "rows": 5,
        "unreadable": 0,
        "without_source": 1,
        "abandoned_temporary_files": 0,
    }
    assert "without source             1" in run("stats", cache).stdout.splitlines()


def test_verify_accepts_valid_entries(cache: Path) -> None:
    result = run("verify", cache)
    assert (result.returncode, result.stdout) == (0, "")
    assert "entries: 3, all valid" in result.stderr


def test_verify_names_broken_entries_and_prune_removes_them(cache: Path) -> None:
    flip_bit(entry_of(cache, "a"))
    entry_of(cache, "c").write_bytes(entry_of(cache, "b").read_bytes())
    result = run("verify", cache, "--json")
    assert result.returncode == 5
    problems = {entry["path"]: entry["problem"] for entry in json.loads(result.stdout)["broken"]}
    other = f"cache entry has a different key, {entry_of(cache, 'b').stem}"
    assert problems == {
        str(entry_of(cache, "a")): "damaged cache entry (checksum does not match)",
        str(entry_of(cache, "c")): other,
    }
    for path, problem in problems.items():
        assert f"{path}: {problem}" in result.stderr
    assert "2 of 3 entries are broken" in result.stderr
    assert "Traceback" not in result.stderr

    assert run("prune", cache, "--broken", "-q").returncode == 0
    assert run("verify", cache, "-q").returncode == 0
    assert names(cache) == {"b described"}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ((), {"a described", "b described", "c"}),
        (("--older-than", "2500s"), {"b described", "c"}),
        (("--older-than", "0.5h"), {"c"}),
        (("--absent-source",), {"a described", "c"}),
        (("--max-size", 1), set()),
        (("--max-size", "1G"), {"a described", "b described", "c"}),
        (("--absent-source", "--older-than", "2500s"), {"c"}),
    ],
)
def test_prune_removes_selected_entries(cache: Path, options: tuple[object, ...], left: set[str]) -> None:
    (cache.parent / "b.a3m").unlink()
    result = run("prune", cache, *options, "--dry-run", "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["dry_run"], report["kept"]) == (0, True, len(left))
    assert names(cache) == {"a described", "b described", "c"}

    result = run("prune", cache, *options, "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout) == report | {"dry_run": False}
    assert names(cache) == left
    assert report["removed_bytes"] == sum(entry["bytes"] for entry in report["removed"])


def test_prune_by_size_removes_the_oldest_first(cache: Path) -> None:
    size = entry_of(cache, "b").stat().st_size + entry_of(cache, "c").stat().st_size
    assert run("prune", cache, "--max-size", size).returncode == 0
    assert names(cache) == {"b described", "c"}
    assert run("prune", cache, "--max-size", size - 1).returncode == 0
    assert names(cache) == {"c"}


def test_prune_removes_abandoned_temporary_files_only(cache: Path) -> None:
    stale = cache / "tmp" / f"{'0' * 64}.0123456789ab-1-2.xyz.tmp"
    fresh = cache / "tmp" / f"{'1' * 64}.0123456789ab-1-2.xyz.tmp"
    for path in (stale, fresh, cache / "notes.txt", cache / "ab.safetensors"):
        path.write_text("")
    os.utime(stale, (0, 0))
    result = run("prune", cache, "--dry-run")
    assert f"{stale}: would be removed: its writer was killed" in result.stderr
    assert stale.exists()
    result = run("prune", cache)
    assert result.returncode == 0
    assert "0 entries (0 bytes) and 1 temporary files removed, 3 entries kept" in result.stderr
    assert not stale.exists()
    assert fresh.exists() and (cache / "notes.txt").exists() and (cache / "ab.safetensors").exists()


@pytest.mark.parametrize(
    "command", [("cache-features", "a.a3m", "--cache", "cache"), ("cache", "prune", "cache")]
)
def test_next_run_removes_temporary_files_of_killed_writers(cache: Path, command: tuple[str, ...]) -> None:
    write = (
        "import os, pathlib, signal; from features.cache.cleanup import temporary_prefix;"
        "path = pathlib.Path(f'{temporary_prefix(pathlib.Path(), chr(48) * 64)}x.tmp');"
        "path.write_text('half of an ent'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, "-c", write], cwd=cache, env=environment, timeout=120, check=False)
    assert len(list((cache / "tmp").iterdir())) == 1
    result = subprocess.run(
        [sys.executable, "-m", "foldcli", *command],
        cwd=cache.parent, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert list((cache / "tmp").iterdir()) == []
    assert names(cache) == {"a described", "b described", "c"}


@pytest.mark.parametrize("name", ["ls", "stats", "verify", "prune"])
def test_missing_cache_is_bad_input_and_an_empty_one_is_not(name: str, tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "no such folder"), (Path(__file__), "not a folder")):
        result = run(name, path)
        assert result.returncode == 3
        assert result.stderr == f"foldcli: error: {path}: {reason}\n"
    assert run(name, tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prune", ".", "--older-than", "3"), "expected an age such as"),
        (("prune", ".", "--older-than", "-3d"), "expected an age such as"),
        (("prune", ".", "--max-size", "lots"), "expected bytes such as"),
        (("tidy", "."), "No such command"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
