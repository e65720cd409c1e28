"""Tests of the reader of OpenFold3's checkpoints."""

import os
import pickle
from pathlib import Path

import pytest
import safetensors
import torch

from model.alphafold3.config import OPENBIND, P2, AlphaFold3Config
from model.alphafold3.network import AlphaFold3
from model.checkpoints.openfold3 import (
    convert_checkpoint,
    openfold3_tensors,
    read_checkpoint,
    recognise,
    translate,
)
from model.errors import ParametersError, ParametersMissing
from msa.base.digests import file_sha256
from tests.model.alphafold3.depths import shallow
from tests.model.checkpoints.fake_checkpoints import Tensors, fake_tensors, save


@pytest.fixture(scope="module", params=[OPENBIND, P2], ids=lambda config: config.name)
def config(request: pytest.FixtureRequest) -> AlphaFold3Config:
    """Return a network with one block of each kind."""
    return shallow(request.param)


@pytest.fixture(scope="module")
def tensors(config: AlphaFold3Config) -> Tensors:
    return fake_tensors(config)


@pytest.fixture
def path(tensors: Tensors, tmp_path: Path) -> Path:
    return save(tensors, tmp_path / "checkpoint.pt")


def test_network_and_depths_are_recognised_by_their_tensors(
    config: AlphaFold3Config, tensors: Tensors
) -> None:
    assert recognise(tensors) == config
    assert config.transposed_ending_bias == (config.name == P2.name)


def test_tensors_are_translated_to_and_fro(tensors: Tensors) -> None:
    generator = torch.Generator().manual_seed(1)
    theirs = {name: torch.rand(x.shape, generator=generator) for name, x in tensors.items()}
    again = openfold3_tensors(translate(theirs)[1])
    assert again.keys() == theirs.keys()
    assert all(torch.equal(again[name], x) for name, x in theirs.items())


def test_checkpoint_is_read_and_loaded(config: AlphaFold3Config, tensors: Tensors, path: Path) -> None:
    found, ours = read_checkpoint(path)
    assert found == config
    network = AlphaFold3.load(found, ours)
    assert not any(parameter.is_meta or parameter.requires_grad for parameter in network.parameters())
    block = network.pairformer_stack.blocks[0].pair_stack
    prefix = "pairformer_stack.blocks.0.pair_stack"
    # AlphaFold2's incoming multiplication has the factors the other way round
    for module, factor in (("tri_mul_out", "a"), ("tri_mul_in", "b")):
        left = getattr(block, module).left_projection
        assert bool((left.weights == tensors[f"{prefix}.{module}.linear_{factor}_p.weight"][0, 0]).all())
        assert bool((left.bias == 0).all())
    value = tensors["diffusion_module.linear_s.weight"]
    assert torch.equal(network.diffusion_module.linear_s.weight, value)


def test_converted_checkpoint_holds_the_same_tensors(
    config: AlphaFold3Config, tensors: Tensors, path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "network.safetensors"
    convert_checkpoint(path, target)
    assert target.stat().st_mode == path.stat().st_mode
    with safetensors.safe_open(target, "pt") as file:
        assert set(file.keys()) == set(tensors)
        assert file.metadata() == {"network": config.name, "source_sha256": file_sha256(path)}
    before, after = read_checkpoint(path), read_checkpoint(target)
    assert before[0] == after[0]
    assert before[1].keys() == after[1].keys()
    assert all(torch.equal(x, after[1][name]) for name, x in before[1].items())


def test_missing_unknown_and_misshapen_tensors_are_named_in_one_error(
    tensors: Tensors, tmp_path: Path
) -> None:
    changed = dict(tensors)
    del changed["linear_s.weight"]
    changed["aux_heads.affinity.weight"] = torch.zeros(1)
    changed["linear_z.weight"] = torch.zeros(2, 3)
    changed["layer_norm_s.bias"] = torch.full((384,), torch.nan)
    changed["layer_norm_s.weight"] = torch.zeros(384, dtype=torch.int64)
    path = save(changed, tmp_path / "changed.pt")
    with pytest.raises(ParametersError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: does not contain the parameters of ")
    for part in (
        "missing: linear_s.weight",
        "unknown: aux_heads.affinity.weight",
        "wrong shape: linear_z.weight is (2, 3) instead of (128, 128)",
        "not floating point: layer_norm_s.weight (torch.int64)",
        "not finite: layer_norm_s.bias",
    ):
        assert part in message
    assert "\n" not in message


class Evil:
    """An object whose pickle runs a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_that_runs_code_is_refused(zipped: bool, tmp_path: Path) -> None:
    path, marker = tmp_path / "evil.pt", tmp_path / "marker"
    content = {"linear_s.weight": Evil(marker)}
    if zipped:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(ParametersError, match=r"its pickle contains more than tensors|neither a checkpoint"):
        read_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"state_dict": {"a": torch.zeros(1)}}, "contains more than tensors by name: state_dict"),
        ([torch.zeros(1)], "does not contain tensors by name"),
        ({"a": torch.zeros(1)}, "unknown: a"),
    ],
)
def test_other_content_is_refused(content: object, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.save(content, path)
    with pytest.raises(ParametersError, match=reason):
        read_checkpoint(path)


def test_truncated_and_foreign_files_are_refused(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    for name, data in (
        ("truncated.pt", content[: len(content) // 2]),
        ("empty.pt", b""),
        ("text.pt", b"hello"),
    ):
        damaged = tmp_path / name
        damaged.write_bytes(data)
        with pytest.raises(ParametersError, match=name):
            read_checkpoint(damaged)


def test_missing_file_is_reported_with_its_origin(tmp_path: Path) -> None:
    with pytest.raises(ParametersMissing, match=r"no such file\nget it from https://"):
        read_checkpoint(tmp_path / "none.pt")
