"""Tests of the networks of a run."""

from pathlib import Path

import numpy as np
import pytest

from features.deterministic import make_features
from foldcli.params.parameters import ParameterSource
from foldcli.pipeline import network_loading
from foldcli.pipeline.device import NetworkMemory
from foldcli.pipeline.identity import Job
from foldcli.pipeline.predictor import Predictor
from foldcli.pipeline.settings import PredictSettings
from model.config import ModelConfig, model_config
from model.parameters import random_parameters
from msa.io.alignments import parse_alignment


def small_config(name: str) -> ModelConfig:
    """Return a network's configuration with one block in each stack."""
    return model_config(name).with_blocks(1, 1)


def test_parameters_of_the_next_network_are_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_loading, "model_config", small_config)
    sources = []
    for number in (3, 4, 5):
        source = ParameterSource(number, f"model_{number}_ptm", tmp_path / f"{number}.npz")
        np.savez(tmp_path / f"{number}.npz", **random_parameters(small_config(source.config_name), number))
        sources.append(source)
    predictor = Predictor(sources, PredictSettings(num_recycles=0), NetworkMemory("cpu"))
    features = make_features([parse_alignment(b">a\nACDE\n>b\nACDF\n")])
    for index, source in enumerate(sources):
        job = Job(source, 0, source.label)
        sample = predictor.sample(features, None, predictor.sampling(job))
        collect = predictor.start("a", job, sample, lambda done, total: None)
        assert list(predictor._arrays) == sources[index + 1 : index + 2]
        collect()
    # networks have the parameters of their own files, and those of used ones are not read again
    key = "alphafold/alphafold_iteration/evoformer/preprocess_1d//bias"
    for source in sources:
        expected = random_parameters(small_config(source.config_name), source.number)[key]
        np.testing.assert_array_equal(
            predictor.network(source).evoformer.input_embedding.preprocess_1d.bias, expected
        )
    predictor._read_ahead(sources[0])
    assert not predictor._arrays
