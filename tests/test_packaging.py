"""The contents of the source distribution and of the wheel."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from foldcli.doctor.system_checks import package_ranges
from foldcli.version import VERSION
from model.checkpoints.alphafold2 import load_folder
from model.checkpoints.network_folder import COMPACT_FOLDER, MANIFEST_FILE, WEIGHTS_FILE, read_manifest
from tests.networks import tiny_network, write_packaged_network

PACKAGES = ("foldcli", "msa", "features", "model", "cuda")


@pytest.fixture(scope="module")
def in_sdist(sdist: Path) -> set[str]:
    """Return the paths of the files in the source distribution, without its top folder."""
    assert sdist.name == f"foldcli-{VERSION}.tar.gz"
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


@pytest.fixture(scope="module")
def in_wheel(wheel: Path) -> set[str]:
    assert wheel.name == f"foldcli-{VERSION}-py3-none-any.whl"
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def package_files(root: Path) -> set[str]:
    """Return the paths of all files of our packages, code and data."""
    files = (path for name in PACKAGES for path in (root / name).rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_sdist_and_wheel_contain_every_package_file(package_files, in_sdist, in_wheel) -> None:
    assert any(name.endswith("tuning/default.json") for name in package_files)
    assert package_files - in_sdist == set()
    assert package_files - in_wheel == set()


@pytest.mark.slow
def test_sdist_contains_documentation_and_examples(root: Path, in_sdist) -> None:
    expected = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"}
    for folder in ("docs", "examples", "containers", "recipes"):
        files = (path for path in (root / folder).rglob("*") if path.is_file())
        expected |= {str(path.relative_to(root)) for path in files if "__pycache__" not in path.parts}
    assert expected - in_sdist == set()


@pytest.mark.slow
def test_sdist_and_wheel_contain_no_other_files(in_sdist, in_wheel) -> None:
    unwanted = re.compile(r"^(tests|benchmarks)/|\.pyc$")
    assert {name for name in in_sdist if unwanted.search(name)} == set()
    tops = {name.partition("/")[0] for name in in_wheel}
    assert tops == {*PACKAGES, f"foldcli-{VERSION}.dist-info"}
    assert f"foldcli-{VERSION}.dist-info/licenses/LICENSE" in in_wheel
    assert "cuda/__init__.py" not in in_wheel


@pytest.mark.slow
def test_wheel_and_nvidias_packages_import_together(installed: dict[str, str], tmp_path: Path) -> None:
    code = "import numba.cuda, cuda.bindings, cuda.fused, cuda.alignment; print(cuda.alignment.__file__)"
    command = ["python", "-c", code]
    result = subprocess.run(command, cwd=tmp_path, env=installed, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(installed["VIRTUAL_ENV"])


@pytest.mark.slow
def test_doctor_of_an_installed_wheel_finds_all_packages(installed: dict[str, str], tmp_path: Path) -> None:
    # the metadata of a wheel writes some names differently than pyproject.toml
    environment = {name: value for name, value in installed.items() if name != "NUMBA_CACHE_DIR"}
    environment["FOLDCLI_CACHE"] = str(tmp_path / "cache")
    command = ["foldcli", "doctor", "--device", "cpu", "--json"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    found = {check["name"]: check["status"] for check in json.loads(result.stdout)["checks"]}
    assert (found.keys() >= {*package_ranges(), "pyyaml"}) and found["pyyaml"] == "ok"
    # compiled code would remain after an uninstallation
    assert list((tmp_path / "cache/kernels/numba").rglob("*.nbi"))
    assert not list(Path(installed["VIRTUAL_ENV"]).rglob("*.nb?"))


def test_conda_recipe_has_the_same_requirements(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    recipe = (root / "recipes/bioconda/meta.yaml").read_text()
    assert f'version = "{VERSION}"' in recipe
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    conda = {re.sub(r"[\s-]*(\S+) ?(.*)", r"\1\2", line) for line in run.splitlines()}
    # some packages have other names in conda; molstar-cli is on PyPI only, and reports work without it
    names = {
        "torch": "pytorch",
        "matplotlib": "matplotlib-base",
        "xxhash": "python-xxhash",
        "PyYAML": "pyyaml",
        "Jinja2": "jinja2",
    }
    required = [each for each in project["dependencies"] if not each.startswith("molstar-cli")]
    expected = {re.sub(r"^\w+\b", lambda name: names.get(name[0], name[0]), each) for each in required}
    assert conda == expected | {f"python{project['requires-python']}"}


def test_apptainer_recipe_copies_everything_an_installation_needs(root: Path) -> None:
    recipe = (root / "containers/foldcli.def").read_text()
    copied = set(re.findall(r"^ {4}(\S+) /source/\1$", recipe, re.MULTILINE))
    assert copied == {*PACKAGES, "docs", "pyproject.toml", "README.md", "LICENSE"}


@pytest.mark.slow
def test_rebuilt_wheel_omits_removed_modules_and_has_the_compact_network(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in PACKAGES:
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "docs"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    removed = source / "msa/removed_later.py"
    removed.write_text("")
    if not COMPACT_FOLDER.exists():
        write_packaged_network(source / "model/compact", tiny_network())
    names = []
    for folder in ("first", "second"):
        code = f"from hatchling import build; print(build.build_wheel({str(tmp_path / folder)!r}))"
        built = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        names.append(set(zipfile.ZipFile(tmp_path / folder / built.stdout.split()[-1]).namelist()))
        removed.unlink(missing_ok=True)
    assert names[0] - names[1] == {"msa/removed_later.py"}
    assert {f"model/compact/{name}" for name in (MANIFEST_FILE, WEIGHTS_FILE)} <= names[0]


@pytest.mark.skipif(not COMPACT_FOLDER.exists(), reason="the package does not contain the compact network")
def test_compact_network_is_complete() -> None:
    manifest = read_manifest(COMPACT_FOLDER)
    assert (manifest.name, manifest.licence) == ("compact", "CC BY 4.0")
    assert load_folder(COMPACT_FOLDER, manifest)
    assert (COMPACT_FOLDER / WEIGHTS_FILE).stat().st_size <= 20e6
    assert manifest.held_out
