"""Tests of the networks of a run."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from torch import distributed

from benchmarks.random_parameters import random_parameters
from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings
from features.templates.candidates import TemplateHits
from foldcli.families.alphafold2 import AlignmentInputs
from foldcli.families.settings import AlphaFold2Settings, Job, NetworkOptions
from foldcli.params import parameters
from foldcli.params.parameters import ParameterSource, find_parameters
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.network.processes import Processes
from foldcli.pipeline.network.ranks import open_predictor
from foldcli.pipeline.network.start import start
from foldcli.pipeline.prepare.template_stage import TargetTemplates
from model.alphafold2.modules.config import ModelConfig, model_config
from msa.alignments.files import parse_alignment
from msa.base.residues import ATOM37
from tests.networks import tiny_network, tiny_parameters, write_packaged_network


def small_config(name: str) -> ModelConfig:
    """Return a network's configuration with one block in each stack."""
    return model_config(name).with_blocks(1, 1)


def test_parameters_of_the_next_network_are_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "model_config", small_config)
    sources = []
    for number in (3, 4, 5):
        source = ParameterSource(number, f"model_{number}_ptm", tmp_path / f"{number}.npz")
        np.savez(tmp_path / f"{number}.npz", **random_parameters(small_config(source.config_name), number))
        sources.append(source)
    predictor = Predictor(sources, AlphaFold2Settings(num_recycles=0), NetworkMemory("cpu"))
    features = make_features([parse_alignment(b">a\nACDE\n>b\nACDF\n")])
    for index, source in enumerate(sources):
        job = Job(source, 0, source.label)
        sample = predictor.family.sample(AlignmentInputs(features, None), job, predictor.settings)
        collect = predictor.start("a", job, sample, lambda done, total: None)
        assert list(predictor._arrays) == sources[index + 1 : index + 2]
        collect()
    # networks have the parameters of their own files, and those of used ones are not read again
    key = "alphafold/alphafold_iteration/evoformer/preprocess_1d//bias"
    for source in sources:
        expected = random_parameters(small_config(source.config_name), source.number)[key]
        np.testing.assert_array_equal(
            predictor.network(source).model.evoformer.input_embedding.preprocess_1d.bias, expected
        )
    predictor._read_ahead(sources[0])
    assert not predictor._arrays


def test_inputs_are_those_of_the_training_that_the_manifest_describes(tmp_path: Path) -> None:
    write_packaged_network(tmp_path / "network", tiny_network())
    sources = find_parameters(str(tmp_path / "network"), (1, 2), "auto")
    assert [source.label for source in sources] == ["tiny"]
    settings = AlphaFold2Settings(num_recycles=2, max_seq=16, max_extra_seq=24)
    predictor = Predictor(sources, settings, NetworkMemory("cpu"))
    job = Job(sources[0], 3, "")
    family = predictor.family
    sampling = family.sampling(job, settings)
    assert sampling == (SamplingSettings(16, 24, 2, 0.15, resample=False), 3)
    assert family.uses_templates(job.source)

    features = make_features([parse_alignment(b">a\nACDE\n>b\nACDF\n")])
    random = np.random.default_rng(0)
    templates = {
        "template_aatype": np.zeros((3, 4), np.int32),
        "template_all_atom_positions": random.random((3, 4, 37, 3)).astype(np.float32),
        "template_all_atom_masks": np.ones((3, 4, 37), np.float32),
        "template_sum_probs": np.ones((3, 1), np.float32),
        "template_pseudo_beta": np.ones((3, 4, 3), np.float32),
        "template_pseudo_beta_mask": np.ones((3, 4), np.float32),
    }
    inputs = AlignmentInputs(features, TargetTemplates(TemplateHits("ACDE"), templates))
    sample = family.sample(inputs, job, settings)
    # two templates, no side chains beyond CB, and the same rows and masks in all passes
    mask = sample["template_all_atom_masks"]
    assert mask.shape == (3, 2, 4, 37)
    names = {ATOM37[atom] for atom in np.flatnonzero(mask.any(axis=(0, 1, 2)))}
    assert names == {"N", "CA", "C", "O", "CB"}
    assert not sample["template_all_atom_positions"][mask == 0].any()
    assert (sample["msa_feat"] == sample["msa_feat"][0]).all()


class Compilation:
    """A compilation of kernels that goes on until the test ends it."""

    def __init__(self) -> None:
        self.begun, self.all = Event(), Event()

    def wait(self) -> None:
        assert self.all.wait(60)


@pytest.mark.parametrize("ranks", [1, 2])
def test_run_ends_when_all_kernels_are_compiled(ranks: int) -> None:
    compilation, future, ended = Compilation(), Future[Any](), Event()
    future.set_result(compilation)
    options = NetworkOptions(
        tiny_parameters(),
        (3,),
        "auto",
        "cpu",
        None,
        None,
        "auto",
        AlphaFold2Settings(),
        gpus_per_target=ranks,
    )
    startup = start(options, processes=Processes(rank_threads=ranks if ranks > 1 else None))

    def run() -> None:
        with open_predictor(options, replace(startup, compilation=future), ranks, None, False):
            compilation.begun.set()
        ended.set()

    Thread(target=run, daemon=True).start()
    assert compilation.begun.wait(60) and not ended.wait(0.2)
    compilation.all.set()
    assert ended.wait(60)
    if ranks > 1:
        distributed.destroy_process_group()
