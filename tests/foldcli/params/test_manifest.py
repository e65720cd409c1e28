"""parameters.json: files with architectures other than those of the published networks."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.families.registry import check_parameters
from foldcli.params.manifest import ArchiveRecord, FileRecord, ParameterManifest, read_manifest
from foldcli.params.parameters import find_parameters, installed_parameters
from foldcli.params.verify import verify
from model.alphafold2.modules.config import model_config
from model.errors import ParametersError
from msa.base.errors import InputError
from tests.networks import tiny_version, write_parameters

NAMES = ("model_1_ptm", "model_1_multimer_v3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a tiny network for single chains, and one for complexes."""
    write_parameters(tmp_path / "params", *map(tiny_version, NAMES))
    return tmp_path / "params"


def test_networks_of_other_sizes_are_found_and_verified(folder: Path) -> None:
    sources = find_parameters(str(folder), (1,), "auto", ("monomer", "multimer"))
    assert [source.label for source in sources] == [
        "alphafold2_ptm_model_1",
        "alphafold2_multimer_v3_model_1",
    ]
    assert [source.config for source in sources] == [tiny_version(name) for name in NAMES]
    assert all(source.is_untrained for source in sources)
    assert installed_parameters(folder) == sources
    assert [result.problem for result in verify(sources, lambda *_: None)] == ["", ""]


def test_files_must_fit_their_architectures(folder: Path) -> None:
    wrong = replace(tiny_version("model_1_ptm"), predicted_aligned_error=False)
    ParameterManifest(architectures={"params_model_1_ptm.npz": wrong}).write(folder)
    with pytest.raises(ParametersError, match="does not contain the parameters of model_1_ptm: unknown: "):
        check_parameters(find_parameters(str(folder), (1,), "auto"))
    # without a description, a file has the architecture of the published network
    (folder / "parameters.json").unlink()
    (source,) = find_parameters(str(folder), (1,), "auto")
    assert not source.is_untrained
    with pytest.raises(ParametersError, match="does not fit model_1_ptm"):
        check_parameters([source])


def test_architecture_is_part_of_the_identity(folder: Path) -> None:
    sources = find_parameters(str(folder), (1,), "auto")
    first = check_parameters(sources)
    assert check_parameters(sources) == first
    config = tiny_version("model_1_ptm")
    other = replace(config, structure=replace(config.structure, position_scale=11.0))
    ParameterManifest(architectures={"params_model_1_ptm.npz": other}).write(folder)
    assert check_parameters(find_parameters(str(folder), (1,), "auto")) != first


def test_fetched_files_have_published_architectures(folder: Path) -> None:
    manifest = read_manifest(folder)
    record, archive = FileRecord(10, "0" * 64, "1" * 64), ArchiveRecord("URL", 20, "1" * 64, "")
    fetched = manifest.with_unpacked({"params_model_1_ptm.npz": record}, archive)
    assert list(fetched.architectures) == ["params_model_1_multimer_v3.npz"]
    fetched.write(folder)
    assert read_manifest(folder) == fetched


def test_example_of_the_documentation_is_read(root: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r'^ {4}\{"format_version".*\n.*', (root / "docs/parameters.md").read_text(), re.M)
    (tmp_path / "parameters.json").write_text(example)
    expected = replace(model_config("model_3_ptm"), trained=False).with_blocks(8, 4)
    assert read_manifest(tmp_path).architectures == {"params_model_3_ptm.npz": expected}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"surprise": 1}, r"params_model_1_ptm\.npz\.surprise: unknown key"),
        ({"multimer": {}}, r"params_model_1_ptm\.npz: object missing required field name"),
        ([], "params_model_1_ptm.npz: expected object, got array"),
        ({"name": "model_1_ptm", "multimer": {}}, "params_model_1_ptm.npz: .* network of another kind"),
    ],
)
def test_damaged_descriptions_are_refused(folder: Path, content: object, reason: str) -> None:
    path = folder / "parameters.json"
    described = json.loads(path.read_text())
    described["architectures"]["params_model_1_ptm.npz"] = content
    path.write_text(json.dumps(described))
    with pytest.raises(InputError, match=rf"parameters\.json: .* damaged one \({reason}"):
        find_parameters(str(folder), (1,), "auto")
