"""Import, download and discovery of OpenFold3's parameters, with checkpoints of small networks."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from foldcli.cli import cli
from foldcli.errors import exit_code_of
from foldcli.params.fetch import WORK_FOLDER
from foldcli.params.openfold3 import (
    PUBLISHED,
    AllAtomParameters,
    find_parameters,
    installed_parameters,
)
from foldcli.params.openfold3_import import fetch_parameters, import_parameters
from model.alphafold3.config import OPENBIND, P2, AlphaFold3Config
from model.checkpoints.openfold3 import read_checkpoint
from model.errors import ParametersError, ParametersMissing
from msa.base.errors import MissingError
from tests.foldcli.params.mirror import Mirror
from tests.model.alphafold3.depths import shallow
from tests.model.checkpoints.fake_checkpoints import fake_tensors, save


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a checkpoint of each network, by variant."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def write(name: str, config: AlphaFold3Config) -> Path:
        return save(fake_tensors(shallow(config)), folder / f"{name}.pt")

    return {"openbind": write("mine", OPENBIND), "p2": write("old one", P2)}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def imported(
    checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, AllAtomParameters]:
    """Return the imported parameters of each network, in one folder."""
    folder = tmp_path_factory.mktemp("imported")
    given = {"openbind": None, "p2": sha256(checkpoints["p2"]).upper()}
    return {variant: import_parameters(path, folder, given[variant]) for variant, path in checkpoints.items()}


def test_checkpoints_are_recognised_converted_once_and_found(
    checkpoints: dict[str, Path], imported: dict[str, AllAtomParameters]
) -> None:
    folder = imported["p2"].file.parent
    for variant, made in imported.items():
        path = checkpoints[variant]
        assert (made.variant, made.source, made.source_sha256) == (variant, path.name, sha256(path))
        assert find_parameters(folder, made.name) == made
    assert [imported[variant].checked for variant in ("openbind", "p2")] == ["", "SHA-256 given"]
    assert [each.name for each in installed_parameters(folder)] == ["mine", "old_one"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "mine.json", "mine.safetensors", "old_one.json", "old_one.safetensors",
    ]  # fmt: skip
    with pytest.raises(MissingError, match=r"no parameters of3-ob.* only mine, old_one\nGet them"):
        find_parameters(folder)
    assert find_parameters(checkpoints["p2"]).file == checkpoints["p2"]


def test_imported_parameters_are_mapped_into_memory(imported: dict[str, AllAtomParameters]) -> None:
    file = imported["openbind"].file
    _, tensors = read_checkpoint(file)
    places = {tensors[name].untyped_storage().data_ptr() for name in tensors if "linear_s" in name}
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(file) in line]
    ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
    assert places
    assert all(any(start <= place < end for start, end in ranges) for place in places)


def test_files_that_differ_from_the_published_ones_are_refused(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / f"{P2.name}.pt"
    path.write_bytes(checkpoints["p2"].read_bytes())
    with pytest.raises(ParametersError, match=f"its SHA-256 is {sha256(path)}; the one published is af09"):
        import_parameters(path, tmp_path / "out")
    with pytest.raises(ParametersError, match="the one given is 00"):
        import_parameters(checkpoints["p2"], tmp_path / "out", "00")
    assert not list((tmp_path / "out").iterdir())


class Command:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_pickles_that_want_more_and_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    torch.save({"a": Command()}, tmp_path / "evil.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("hello")
    for name, reason in (("evil", "more than tensors"), ("other", "unknown: a"), ("text", "neither")):
        with pytest.raises(ParametersError, match=reason) as caught:
            import_parameters(tmp_path / f"{name}.pt", tmp_path / "out")
        assert str(caught.value).startswith(str(tmp_path / f"{name}.pt")) and "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())
    with pytest.raises(ParametersMissing):
        import_parameters(tmp_path / "none.pt", tmp_path / "out")
    with pytest.raises(MissingError, match="none does not exist"):
        find_parameters(tmp_path / "none")
    with pytest.raises(MissingError, match="out: none"):
        find_parameters(tmp_path / "out")


def test_damaged_manifests_are_named(imported: dict[str, AllAtomParameters], tmp_path: Path) -> None:
    file = imported["openbind"].file
    (tmp_path / "mine.safetensors").symlink_to(file)
    shutil.copy(file.with_name("mine.json"), tmp_path)
    assert find_parameters(tmp_path).name == "mine"
    path = tmp_path / "mine.json"
    content = json.loads(path.read_text())
    for change, reason in (
        ({"format_version": 9}, "format version 9"),
        ({"file": "gone.safetensors"}, "gone.safetensors is missing"),
        ({"name": 1}, "damaged manifest"),
    ):
        path.write_text(json.dumps(content | change))
        with pytest.raises(ParametersError, match=reason):
            find_parameters(tmp_path)
    path.write_text("[]")  # not a manifest
    assert installed_parameters(tmp_path) == []


def test_downloads_are_resumed_and_imported(
    mirror: Mirror, checkpoints: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.content = checkpoints["openbind"].read_bytes()
    mirror.drops = [len(mirror.content) // 2]
    made = fetch_parameters(OPENBIND.name, tmp_path, mirror.url)
    assert (made.name, made.variant, made.source) == (OPENBIND.name, "openbind", f"{OPENBIND.name}.pt")
    assert "not known" in caplog.messages[0] and len(mirror.requests) == 2
    assert find_parameters(tmp_path) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        made.file.with_suffix(".json").name,
        made.file.name,
    ]
    with pytest.raises(ParametersError, match=r"the one published is af09.*; the download was removed"):
        fetch_parameters(P2.name, tmp_path, mirror.url)
    assert not (tmp_path / WORK_FOLDER).exists()


def test_addresses_and_checksums_of_the_published_files() -> None:
    assert [(each.variant, each.sha256 is None) for each in PUBLISHED.values()] == [
        ("openbind", True), ("p2", False),
    ]  # fmt: skip
    assert PUBLISHED[P2.name].url.endswith("/openfold3-parameters/of3-p2-155k.pt")


def test_imported_files_are_verified(imported: dict[str, AllAtomParameters], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(imported["p2"].file.parent, tmp_path / "imported"))

    def run() -> tuple[int, dict[str, tuple[str, str | None]]]:
        result = CliRunner().invoke(cli, ["params", "verify", "--params", str(folder), "--json"])
        rows = json.loads(result.stdout)
        code = 0 if result.exception is None else int(exit_code_of(result.exception))
        return code, {Path(row["file"]).stem: (row["checked"], row["problem"]) for row in rows}

    assert run() == (0, {"mine": ("sha256", None), "old_one": ("sha256", None)})
    with (folder / "mine.safetensors").open("r+b") as stream:
        stream.seek(-3, os.SEEK_END)
        byte = stream.read(1)
        stream.seek(-3, os.SEEK_END)
        stream.write(bytes([byte[0] ^ 1]))
    # a manifest of an earlier version
    manifest = json.loads((folder / "old_one.json").read_text())
    del manifest["sha256"], manifest["bytes"]
    (folder / "old_one.json").write_text(json.dumps(manifest))
    code, rows = run()
    assert code == 3 and rows["old_one"] == ("none", None)
    assert "its SHA-256 is" in str(rows["mine"][1])
    (folder / "mine.safetensors").write_bytes((folder / "mine.safetensors").read_bytes()[:-100])
    assert "mine" in run()[1] and run()[1]["mine"][1]
