"""Tests of the training configurations under examples/."""

from dataclasses import replace
from pathlib import Path

import pytest

from foldcli.training.settings import AllAtomRunSettings, read_run_settings
from model.alphafold2.modules.config import model_config
from model.alphafold3.config import OPENBIND
from model.training.runtime.settings import TrainingSettings


@pytest.mark.parametrize("name", ["alphafold2", "compact"])
def test_example_configurations_are_read(root: Path, name: str) -> None:
    assert read_run_settings(root / f"examples/train/{name}.yaml").network.name == name


def test_alphafold2_has_the_sizes_of_deepmind(root: Path) -> None:
    settings = read_run_settings(root / "examples/train/alphafold2.yaml")
    assert isinstance(settings, TrainingSettings)
    assert settings.network == replace(model_config("model_3_ptm"), name="alphafold2")
    assert settings.phases[0].crop == 256 and settings.sampling.clusters == 128


def test_alphafold3_has_the_published_sizes_and_defaults(root: Path) -> None:
    settings = read_run_settings(root / "examples/train/alphafold3.yaml")
    assert isinstance(settings, AllAtomRunSettings)
    assert settings.network == replace(OPENBIND, name="alphafold3")
    expected = AllAtomRunSettings(network=settings.network, checkpoint_every=settings.checkpoint_every)
    assert settings == expected
