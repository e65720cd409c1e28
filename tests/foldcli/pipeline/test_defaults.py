"""Tests of the parameters and databases that runs use if none are named."""

from dataclasses import replace
from pathlib import Path

import pytest

from features.templates.settings import TemplateSettings
from foldcli.params import parameters
from foldcli.params.parameters import COMPACT, TEMPLATE
from foldcli.pipeline import defaults
from foldcli.pipeline.defaults import library_database, with_default_method
from foldcli.pipeline.settings import NetworkOptions, PredictSettings, TemplateOptions
from msa.database.database import TargetDatabase
from tests.networks import tiny_network, write_packaged_network

NETWORK = NetworkOptions(None, (1,), "auto", "cpu", None, None, "auto", PredictSettings())
TEMPLATES = TemplateOptions(None, None, None, None, TemplateSettings())


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache folder without parameters."""
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path))
    monkeypatch.delenv("FOLDCLI_PARAMS", raising=False)
    return tmp_path


def test_templates_are_copied_if_no_parameters_are_installed() -> None:
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params == TEMPLATE


def test_requested_or_installed_parameters_are_used(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_default_method(replace(NETWORK, params="here"), TEMPLATES, ("monomer",)).params == "here"
    (empty_cache / "params").mkdir()
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params is None
    (empty_cache / "params").rmdir()
    monkeypatch.setenv("FOLDCLI_PARAMS", str(empty_cache / "shared"))
    assert with_default_method(NETWORK, TEMPLATES, ("monomer",)).params is None


def test_runs_of_complexes_without_templates_or_on_several_gpus_need_a_network() -> None:
    assert with_default_method(NETWORK, None, ("monomer",)).params is None
    assert with_default_method(NETWORK, TEMPLATES, ("monomer", "multimer")).params is None
    assert with_default_method(replace(NETWORK, gpus_per_target=2), TEMPLATES, ("monomer",)).params is None


def test_compact_network_can_be_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_packaged_network(tmp_path / "compact", tiny_network())
    monkeypatch.setattr(parameters, "COMPACT_FOLDER", tmp_path / "compact")
    monkeypatch.setattr(defaults, "DEFAULT_METHOD", COMPACT)
    # it needs no templates
    for templates in (TEMPLATES, None):
        network = with_default_method(NETWORK, templates, ("monomer",))
        assert network.params == COMPACT
        assert (network.predict.max_seq, network.predict.max_extra_seq) == (16, 24)
        assert network.predict.num_recycles == 1
    assert with_default_method(replace(NETWORK, num_recycles=5), None, ("monomer",)).predict.num_recycles == 5
    assert with_default_method(NETWORK, TEMPLATES, ("monomer", "multimer")).params is None


def test_default_database_is_that_of_the_package() -> None:
    assert len(TargetDatabase.open(library_database())) > 6000
