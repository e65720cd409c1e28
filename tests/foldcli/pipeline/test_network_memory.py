"""What happens to a target when memory runs out: a second try, then one error that names what was short."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

from cuda.fused.chunking import CPU_BUDGET, row_slices
from foldcli.errors import SomeTargetsFailed
from foldcli.inputs.shard import Shard
from foldcli.options.common import SizeType
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.network_memory import SMALLER, NetworkMemory, predict_within
from foldcli.pipeline.runtime import choose_kernels, choose_precision
from model.alphafold import AlphaFold
from model.config import model_config
from model.errors import OutOfMemory
from model.kernels import REFERENCE
from model.parameters import random_parameters
from model.recycling import Prediction, RecyclingSettings
from msa.errors import MissingError

SAID = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB"


class Scarce:
    """The transition of a device that has no memory for it the first `times` times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.chunks: list[int] = []

    def __call__(self, x: torch.Tensor, weights: Any) -> torch.Tensor:
        rows = next(row_slices(torch.empty(2**30, device="meta"), 1, None))
        self.chunks.append(rows.stop - rows.start)
        if len(self.chunks) <= self.times:
            raise torch.OutOfMemoryError(SAID)
        return REFERENCE.add_transition(x, weights)


@pytest.fixture
def predicted() -> Callable[[Scarce], Prediction]:
    """Predicts a protein of nine residues with a transition given."""

    def predict(transition: Scarce) -> Prediction:
        config = model_config("demo").with_blocks(1, 1)
        kernels = replace(REFERENCE, add_transition=transition)
        network = AlphaFold.from_parameters(config, random_parameters(config), kernels=kernels)
        random = np.random.default_rng(0)
        features = {
            "aatype": random.integers(0, 20, (1, 9)),
            "residue_index": np.arange(9)[None],
            "target_feat": random.random((1, 9, 22), np.float32),
            "msa_feat": random.random((1, 3, 9, 49), np.float32),
            "extra_msa": random.integers(0, 23, (1, 2, 9)),
            "extra_has_deletion": np.zeros((1, 2, 9), np.float32),
            "extra_deletion_value": np.zeros((1, 2, 9), np.float32),
        }
        memory, settings = NetworkMemory("cpu"), RecyclingSettings(0)
        return predict_within(memory, "target", network, features, settings, lambda done, total: None)

    return predict


def test_a_second_try_with_smaller_chunks(predicted: Callable[[Scarce], Prediction], caplog: Any) -> None:
    logging.getLogger("foldcli").propagate = True
    enough, scarce = Scarce(0), Scarce(1)
    expected, found = predicted(enough), predicted(scarce)
    assert np.allclose(found.atom_positions, expected.atom_positions, atol=1e-4)
    assert scarce.chunks[0] > scarce.chunks[1] == scarce.chunks[0] // SMALLER
    assert scarce.chunks[1] == CPU_BUDGET // SMALLER
    (record,) = caplog.records
    assert record.getMessage() == (
        "target: memory ran out (20.00 GiB more); trying once more with smaller chunks"
    )


def test_no_third_try(predicted: Callable[[Scarce], Prediction]) -> None:
    scarce = Scarce(10)
    with pytest.raises(OutOfMemory, match=r"^9 residues, 20.00 GiB more; tried twice, .*") as caught:
        predicted(scarce)
    assert len(scarce.chunks) == 2
    # the failed tries' tensors would be kept with their traceback
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_the_other_targets_go_on(predicted: Callable[[Scarce], Prediction], tmp_path: Path) -> None:
    failures = Failures(tmp_path, Shard(1, 1))
    done: list[str] = []

    def work(name: str, transition: Scarce) -> None:
        predicted(transition)
        done.append(name)

    failures.run([("long", Scarce(10)), ("short", Scarce(0))], work)
    with pytest.raises(SomeTargetsFailed, match="1 of 2"):
        failures.finish()
    assert done == ["short"]
    entry = json.loads((tmp_path / "failures.jsonl").read_text())
    assert entry["target"] == "long"
    assert entry["error"].startswith("not enough memory: 9 residues, 20.00 GiB more")


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("3K", 3 * 2**10), ("20G", 20 * 2**30), ("7M", 7 * 2**20)]
)
def test_sizes(text: str, size: int) -> None:
    assert SizeType().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "G", "1.5G", "-2G", "2g"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected bytes such as"):
        SizeType().convert(text, None, None)


def test_precision_and_kernels_without_a_gpu() -> None:
    assert choose_precision(None, "cpu") == "fp32" and choose_precision("bf16", "cpu") == "bf16"
    assert choose_kernels("auto", "cpu") == choose_kernels("reference", "cpu") == "reference"
    with pytest.raises(MissingError, match="--kernels fused: there is no GPU"):
        choose_kernels("fused", "cpu")
