"""Tests of the parameters and databases that runs use if none are named."""

from dataclasses import replace
from pathlib import Path

import pytest

from features.templates.library.settings import TemplateSettings
from foldcli.families.settings import AlphaFold2Settings, NetworkOptions
from foldcli.params.parameters import TEMPLATE
from foldcli.pipeline.targets.defaults import library_database, with_default_method
from foldcli.pipeline.targets.settings import TemplateOptions
from model.checkpoints import network_folder
from model.checkpoints.network_folder import COMPACT
from msa.database.database import TargetDatabase
from tests.networks import tiny_network, write_packaged_network

NETWORK = NetworkOptions(None, (1,), "auto", "cpu", None, None, "auto", AlphaFold2Settings())
TEMPLATES = TemplateOptions(None, None, None, None, TemplateSettings())


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache folder without parameters, and an installation without the compact network."""
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    monkeypatch.delenv("FOLDCLI_PARAMS", raising=False)
    monkeypatch.setattr(network_folder, "COMPACT_FOLDER", tmp_path / "compact")
    return tmp_path


@pytest.fixture
def compact(empty_cache: Path) -> None:
    """Use an installation with a compact network."""
    write_packaged_network(empty_cache / "compact", tiny_network())


@pytest.mark.usefixtures("compact")
@pytest.mark.parametrize("templates", [TEMPLATES, None])
def test_compact_network_predicts_if_no_parameters_are_installed(templates: TemplateOptions | None) -> None:
    network = with_default_method(NETWORK, templates, ("monomer",))
    assert network.params == COMPACT
    assert (network.predict.max_seq, network.predict.max_extra_seq) == (16, 24)
    assert network.predict.num_recycles == 1


@pytest.mark.usefixtures("compact")
def test_requested_recycles_of_the_compact_network_are_kept() -> None:
    assert with_default_method(replace(NETWORK, num_recycles=5), None, ("monomer",)).predict.num_recycles == 5


@pytest.mark.usefixtures("compact")
def test_parameters_of_openfold3_alone_are_none_of_alphafold2(empty_cache: Path) -> None:
    (empty_cache / "params/openfold3").mkdir(parents=True)
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params == COMPACT
    (empty_cache / "params/params_model_1.npz").touch()
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params is None


@pytest.mark.usefixtures("compact")
def test_complexes_need_other_parameters() -> None:
    assert with_default_method(NETWORK, TEMPLATES, ("multimer",)).params is None


@pytest.mark.usefixtures("compact")
def test_single_chains_of_a_mixed_list_are_predicted() -> None:
    assert with_default_method(NETWORK, TEMPLATES, ("monomer", "multimer")).params == COMPACT


@pytest.mark.usefixtures("compact")
def test_requested_or_installed_parameters_are_used(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_default_method(replace(NETWORK, params="here"), TEMPLATES, ("monomer",)).params == "here"
    (empty_cache / "params").mkdir()
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params is None
    (empty_cache / "params").rmdir()
    monkeypatch.setenv("FOLDCLI_PARAMS", str(empty_cache / "shared"))
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params is None


def test_templates_are_copied_without_a_compact_network() -> None:
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params == TEMPLATE
    assert with_default_method(NETWORK, None, ("monomer",)).params is None
    assert with_default_method(NETWORK, TEMPLATES, ("multimer",)).params is None
    assert with_default_method(replace(NETWORK, gpus_per_target=2), TEMPLATES, ("monomer",)).params is None


def test_default_database_is_that_of_the_package() -> None:
    assert len(TargetDatabase.open(library_database())) > 6000
