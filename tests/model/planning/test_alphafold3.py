"""The plan of an all-atom prediction's memory, against what predictions hold."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cuda.fused.chunking import chunk_budget
from model.alphafold3.confidence import TargetScorer
from model.alphafold3.config import OPENBIND, P2
from model.alphafold3.sampling import SeededDraws
from model.planning.alphafold3 import GIB, PredictionSize, phase_bytes, plan_prediction
from tests.model.alphafold3.confidence_inputs import make_inputs
from tests.model.alphafold3.parity_networks import network
from tests.model.planning.peak import Peak

H100 = int(78 * GIB)


def bf16_size(tokens: int, **changes: Any) -> PredictionSize:
    return replace(PredictionSize(tokens, 8 * tokens, 1024, half=True), **changes)


@pytest.mark.slow
@torch.inference_mode()
def test_phases_hold_at_most_what_is_planned() -> None:
    model, tokens, atoms, elements = network("openbind"), 96, 5, 2**20
    inputs = make_inputs([0] * tokens, [atoms] * tokens, rows=8, asym_id=np.ones(tokens))
    size = PredictionSize(tokens, atoms * tokens, 8, 2, 1, on_gpu=False)
    phases = phase_bytes(model.config, size, 1, elements)
    draws = SeededDraws(0)

    def peak(function: Callable[[], Any]) -> tuple[int, Any]:
        with chunk_budget(elements), Peak(model) as counted:
            result = function()
        return counted.most, result

    most, trunk = peak(lambda: model.trunk(inputs, draws, cycles=1))
    expected = max(phases[name] for name in ("embedding", "templates", "alignment", "pairformer"))
    assert 0.6 * expected < most < expected
    most, positions = peak(lambda: model.sample(inputs, trunk, draws, steps=1, samples=2, samples_at_once=1))
    assert 0.6 * max(phases["conditions"], phases["steps"]) < most + trunk.pair.nbytes
    assert most + trunk.pair.nbytes < max(phases["conditions"], phases["steps"])
    most, _ = peak(lambda: model.score(inputs, trunk, positions, TargetScorer(inputs)))
    assert 0.6 * phases["heads"] < most + trunk.pair.nbytes < phases["heads"]


def test_samples_are_divided_when_memory_is_short() -> None:
    many = bf16_size(2048, samples=1000)
    plan = plan_prediction(OPENBIND, many, H100)
    assert plan.fits and 1 < plan.samples_at_once < 1000
    assert plan_prediction(OPENBIND, bf16_size(2048), H100).samples_at_once == 5


def test_ranks_divide_the_trunk_and_the_samples() -> None:
    one, two = (plan_prediction(OPENBIND, bf16_size(2048, ranks=ranks), H100) for ranks in (1, 2))
    assert (one.samples_at_once, two.samples_at_once) == (5, 3)
    for phase in ("templates", "alignment", "pairformer"):
        assert two.phases[phase] < 0.8 * one.phases[phase], phase
    assert two.phases["heads"] < one.phases["heads"]


def test_two_devices_predict_longer_targets() -> None:
    assert plan_prediction(OPENBIND, bf16_size(7850), H100).fits
    assert not plan_prediction(OPENBIND, bf16_size(8000), H100).fits
    assert plan_prediction(OPENBIND, bf16_size(10250, ranks=2), H100).fits


def test_parameters_are_those_of_the_file() -> None:
    for config in (OPENBIND, P2):
        plan = plan_prediction(config, bf16_size(100, half=False), H100)
        assert plan.loaded / 1e9 == pytest.approx(1.47, abs=0.05)


def test_every_size_counts() -> None:
    base = PredictionSize(2000, 16_000, 2000, samples=50)
    needed = plan_prediction(OPENBIND, base, H100).needed
    for name in ("tokens", "rows", "samples", "templates"):
        smaller = replace(base, **{name: getattr(base, name) // 2})
        assert plan_prediction(OPENBIND, smaller, H100).needed < needed, name
    assert plan_prediction(OPENBIND, replace(base, half=True), H100).needed < needed
