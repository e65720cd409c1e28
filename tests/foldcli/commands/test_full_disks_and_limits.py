"""Tests of commands on full disks, on read-only file systems, and under limits, all of them real."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

FOLDCLI = [sys.executable, "-m", "foldcli"]
QUICK = ["--params", "template", "--no-plots", "--threads", "1"]
NOT_MOUNTED = 77


def run_with_mount(folder: Path, options: str, *commands: list[object]) -> list[tuple[int, str]]:
    """Run commands while a small file system is mounted; return their exit codes and errors.

    Between two commands the file system grows.
    """
    folder.mkdir(exist_ok=True)
    lines = [f'mount -t tmpfs -o {options} none "$1" || exit {NOT_MOUNTED}']
    for number, command in enumerate(commands):
        words = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in command)
        lines += [f'{words} 2> "$2.{number}"; echo $?', 'mount -o remount,size=40m "$1"']
    shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "\n".join(lines), "sh"]
    log = folder.with_name("log")
    try:
        result = subprocess.run([*shell, folder, log], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("the unshare program is not installed")
    if result.returncode == NOT_MOUNTED or "unshare" in result.stderr:
        pytest.skip("not allowed to mount a file system")
    codes = map(int, result.stdout.split())
    return [(code, Path(f"{log}.{number}").read_text()) for number, code in enumerate(codes)]


def errors_in(text: str) -> list[str]:
    assert "Traceback" not in text, text
    return [line for line in text.splitlines() if line.startswith("foldcli: error")]


@pytest.fixture
def queries(root: Path, tmp_path: Path) -> Path:
    path = tmp_path / "queries.fasta"
    second = (root / "examples/ubiquitin.fasta").read_text().split("\n", 1)[1]
    path.write_text((root / "examples/gb1.fasta").read_text() + ">second\n" + second)
    return path


def fold(query: Path, out: Path, *more: object) -> list[object]:
    return [*FOLDCLI, "fold", query, *QUICK, "-o", out, *more]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "file"), [("64k", ".pdb"), ("256k", "molstar")])
def test_full_disk_is_one_line_and_the_next_run_completes_the_target(
    queries: Path, tmp_path: Path, size: str, file: str
) -> None:
    out = tmp_path / "disk/out"
    command = fold(queries, out)
    check = ["sh", "-c", f"ls -R {out} >&2"]
    full, again, listing = run_with_mount(tmp_path / "disk", f"size={size}", command, command, check)
    assert full[0] == 4, full
    (error,) = errors_in(full[1])
    assert "no space left on the disk" in error and file in error and "needs at least" in error
    assert again[0] == 0, again
    assert listing[1].count(".done.json") == 2 and "second.html" in listing[1] and "index.html" in listing[1]
    assert ".tmp" not in listing[1]


@pytest.mark.slow
def test_full_disk_ends_a_run_of_jobs_of_other_programs(root: Path, tmp_path: Path) -> None:
    jobs, out = tmp_path / "jobs", tmp_path / "disk/out"
    jobs.mkdir()
    for name in ("gb1", "ubiquitin"):
        sequence = "".join((root / f"examples/{name}.fasta").read_text().splitlines()[1:])
        protein = {"protein": {"id": "A", "sequence": sequence}}
        (jobs / f"{name}.yaml").write_text(json.dumps({"version": 1, "sequences": [protein]}))
    run = [*FOLDCLI, "search", jobs, root / "examples/demo.fasta", "--format", "boltz", "-o", out]
    full, again = run_with_mount(tmp_path / "disk", "size=4k", run, run)
    (error,) = errors_in(full[1])
    assert full[0] == 4 and error.startswith("foldcli: error: no space left on the disk while writing"), error
    assert again[0] == 0, again


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["out", "cache", "environment", "table", "alignments", "templates", "database", "socket"]
)
def test_read_only_file_system_is_one_line(root: Path, queries: Path, tmp_path: Path, place: str) -> None:
    disk = tmp_path / "disk"
    database = root / "features/templates/embedded/sequences"
    search = [*FOLDCLI, "search", queries, database]
    command = {
        "out": fold(queries, disk / "out"),
        "cache": fold(queries, tmp_path / "out", "--cache", disk / "cache"),
        "environment": ["env", f"FOLDCLI_CACHE={disk}/cache", *fold(queries, tmp_path / "out")],
        "table": [*search, "-o", disk / "hits.m8"],
        "alignments": [*search, "--format", "a3m", "-o", disk / "alignments"],
        "templates": [*FOLDCLI, "templates", queries, "-o", disk / "templates.tsv"],
        "database": [*FOLDCLI, "createdb", queries, "-o", disk / "database"],
        "socket": [*FOLDCLI, "serve", database, "--socket", disk / "socket"],
    }[place]
    ((code, text),) = run_with_mount(disk, "ro", command)
    (error,) = errors_in(text)
    assert code == 4 and "read-only file system" in error and str(disk) in error, text
    assert f"{disk}/." not in error  # a temporary file


def test_unwritable_home_is_one_line_that_names_the_variable(queries: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(tmp_path / "file/home")}
    environment.pop("FOLDCLI_CACHE", None)
    command = list(map(str, fold(queries, tmp_path / "out")))
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    (error,) = errors_in(result.stderr)
    assert result.returncode == 4 and "FOLDCLI_CACHE" in error, result.stderr


@pytest.mark.parametrize("command", ["search", "createdb"])
def test_limit_of_the_size_of_files_is_named(root: Path, tmp_path: Path, command: str) -> None:
    examples = root / "examples"
    database = root / "features/templates/embedded/sequences"
    arguments = {
        "search": [examples / "gb1.fasta", database, "-o", tmp_path / "result"],
        "createdb": [examples / "demo.fasta", "-o", tmp_path / "result"],
    }[command]
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # afterwards, no machine code has to be stored
    subprocess.run([*FOLDCLI, command, *map(str, arguments[:-1]), str(tmp_path / "first")], check=True)
    result = subprocess.run(
        [*FOLDCLI, command, *map(str, arguments)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
        env=environment,
        capture_output=True,
        text=True,
    )
    (error,) = errors_in(result.stderr)
    assert result.returncode == 4 and str(tmp_path / "result") in error, result.stderr
    assert "a file may have 64 bytes (ulimit -f)" in error
    # Python truncates the bytecode of modules that are imported before the limit is seen
    truncated = {file.name.split(".")[0] for file in (tmp_path / "bytecode").rglob("*.pyc")}
    assert "errors" in truncated and not {"start", "table", "build"} & truncated


def test_limit_of_open_files_is_named(root: Path, tmp_path: Path) -> None:
    command = [*FOLDCLI, "createdb", str(root / "examples/demo.fasta"), "-o", str(tmp_path / "db")]
    result = subprocess.run(
        command,
        # a library takes about 15; which file is the first too many depends on Python's own
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9)),
        capture_output=True,
        text=True,
    )
    (error,) = errors_in(result.stderr)
    assert result.returncode == 4 and not (tmp_path / "db").exists(), result.stderr
    assert error.endswith(": too many open files; a process may open 9 (ulimit -n)")


@pytest.mark.slow
def test_target_without_its_page_gets_it_and_leftovers_of_killed_runs_go(
    queries: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = list(map(str, fold(queries, out)))
    assert subprocess.run(command).returncode == 0
    page = out / "second/second.html"
    page.unlink()
    # a process of this machine that has ended
    tag = subprocess.run(
        [sys.executable, "-c", "from msa.base.temporary_names import process_tag; print(process_tag())"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    for name in ("failures.jsonl", "index.html", "summary.tsv"):
        (out / f".{name}.{tag}.01234567.tmp").touch()
    assert subprocess.run(command).returncode == 0
    assert page.is_file() and not list(out.rglob("*.tmp"))
    assert json.loads((out / "second/second.done.json").read_text())["warnings"] is not None
