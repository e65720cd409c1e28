"""Tests of exceptions: pickling, exit codes, and messages about the limits of a machine."""

import ast
import errno
import importlib
import inspect
import os
import pickle
import resource
import sys
import threading
from pathlib import Path

import click
import pytest

from foldcli.errors import ExitCode, describe, ends_run, exit_code_of, is_bug, run_with_exit_codes
from model.errors import TrainingDiverged
from msa.base.atomic import DiskFull, atomic_write, writing_cache
from msa.base.errors import InputError, UnwritableFolder

PACKAGES = ("foldcli", "features", "msa", "model", "cuda")
BUILT_IN = {name for name, kind in vars(__import__("builtins")).items() if isinstance(kind, type)}


def exception_classes(root: Path) -> list[tuple[str, str]]:
    """Return (module, class) of all exceptions of the packages, found in their sources."""
    definitions = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                    definitions.append((module, node.name, bases))
    names = {name for name in BUILT_IN if issubclass(vars(__import__("builtins"))[name], BaseException)}
    found: list[tuple[str, str]] = []
    while new := [(m, n) for m, n, bases in definitions if names & set(bases) and (m, n) not in found]:
        found += new
        names |= {name for _, name in new}
    return found


def example(kind: type[BaseException]) -> BaseException:
    """Return an instance with a different value for each argument of its constructor."""
    if "__init__" not in {
        name for base in kind.__mro__ for name in vars(base) if base.__module__ != "builtins"
    }:
        return kind("reason")
    values = {"code": ExitCode.MISSING, "reason": "reason " * 100, "line": 3, "column": 4, "row": 5}
    values |= {"length": 6, "expected": 7, "written": 8, "needed": 9, "requested_bytes": 10}
    values |= {"number": errno.ENOSPC, "path": "folder/file", "exit_code": -9}
    return kind(*[values.get(name, name) for name in inspect.signature(kind).parameters])


def test_every_exception_survives_pickling(root: Path) -> None:
    classes = exception_classes(root)
    assert len(classes) > 30
    for module, name in classes:
        error = example(getattr(importlib.import_module(module), name))
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error), name
        assert (str(copy), vars(copy)) == (str(error), vars(error)), name
        if isinstance(error, OSError):
            assert (copy.errno, copy.filename) == (error.errno, error.filename)


def test_full_disk_states_the_size_of_the_file() -> None:
    error = DiskFull(errno.ENOSPC, "No space", "out/a.pdb", 4096, 22_372)
    assert describe(error) == (
        "no space left on the disk while writing out/a.pdb; the file needs at least 22,372 bytes; "
        "no partial file was kept"
    )
    assert exit_code_of(error) is ExitCode.MISSING and ends_run(error)


def test_denied_access_is_something_missing_unless_a_file_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.fasta").touch()
    (tmp_path / "summary.tsv").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "input.fasta")
    for name, code in (
        ("out/x.m8", ExitCode.MISSING),
        ("summary.tsv", ExitCode.MISSING),  # of another user, to be replaced
        (".", ExitCode.MISSING),
        ("input.fasta", ExitCode.BAD_INPUT),
    ):
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / name))
        assert exit_code_of(error) is code


def test_denied_access_in_a_closed_folder_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: object, **options: bool) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "closed/db/manifest.json")
    with monkeypatch.context() as context:
        context.setattr(os, "stat", denied)
        code = exit_code_of(error)
    assert code is ExitCode.MISSING and describe(error) == "closed/db/manifest.json: permission denied"


def test_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:
        (tmp_path / "file").mkdir(parents=True, exist_ok=True)
    assert describe(caught.value) == f"{tmp_path / 'file'}: not a directory"


def test_limits_of_a_process_are_named() -> None:
    opened, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "db/residues.u8")
    assert (
        describe(error) == f"db/residues.u8: too many open files; a process may open {opened:,} (ulimit -n)"
    )
    error = OSError(errno.EFBIG, os.strerror(errno.EFBIG), "out/a.pdb")
    assert describe(error).startswith("out/a.pdb: file too large; a file may have ")
    assert exit_code_of(error) is ExitCode.MISSING and not ends_run(error)


def test_only_errors_of_the_machine_end_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as unwritable, writing_cache(tmp_path / "other"):
        (tmp_path / "file" / "x").write_text("x")
    assert not ends_run(unwritable.value)
    cache = tmp_path / "file" / "cache"
    refused = pytest.raises(UnwritableFolder, match="FOLDCLI_CACHE")
    with refused as caught, writing_cache(cache), atomic_write(cache / "entry") as stream:
        stream.write("x")
    assert exit_code_of(caught.value) is ExitCode.MISSING and ends_run(caught.value)
    assert "\n" not in describe(caught.value) and describe(caught.value).startswith(f"{cache}: ")
    assert ends_run(OSError(errno.EROFS, "", "x")) and not ends_run(InputError("x"))


def test_impossible_paths_are_the_users(tmp_path: Path) -> None:
    loop, long = tmp_path / "loop", tmp_path / ("n" * 300)
    loop.symlink_to(loop)
    for path in (loop, long):
        with pytest.raises(OSError) as caught:
            (path / "x").write_text("x")
        assert exit_code_of(caught.value) is ExitCode.BAD_INPUT and not is_bug(caught.value)
        refused = pytest.raises(UnwritableFolder, match="FOLDCLI_CACHE")
        with refused, writing_cache(path / "cache"), atomic_write(path / "cache" / "entry") as stream:
            stream.write("x")


def test_training_that_diverges_is_no_bug() -> None:
    error = TrainingDiverged("21 steps in a row had a gradient that was not finite")
    assert exit_code_of(error) is ExitCode.BAD_INPUT and not is_bug(error)


@pytest.mark.parametrize(("name", "extra"), [("biotite", "allatom"), ("uvicorn", "server")])
def test_library_of_an_extra_that_is_not_installed_is_named(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    assert exit_code_of(caught.value) is ExitCode.MISSING and not is_bug(caught.value)
    assert describe(caught.value) == f"{name} is not installed: pip install 'foldcli[{extra}]'"


def test_other_missing_modules_are_bugs() -> None:
    assert is_bug(ModuleNotFoundError("No module named 'numpy'", name="numpy"))


def test_truncated_bytecode_is_no_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr(sys, "argv", ["foldcli"])
    assert run_with_exit_codes(command) == ExitCode.UNEXPECTED
    assert "foldcli: error: marshal data too short" in capsys.readouterr().err


def test_interruption_that_became_another_error_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["command"])

    @click.command()
    def command() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            # as a wait for a condition does
            threading.Lock().release()

    assert run_with_exit_codes(command) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == (
        "foldcli: error: interrupted; run the same command again to continue\n"
    )
