"""The differentiable network equals the inference network."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model import residue_constants
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.modules.structure_module import atom14_to_atom37_positions
from model.alphafold2.network import AlphaFold
from model.checkpoints.alphafold2 import build_network
from model.residue_tables import residue_rows
from model.training.alphafold2.features import make_targets, network_features, unpack_atoms
from model.training.alphafold2.losses import LossWeights, total_loss
from model.training.alphafold2.network import NetworkOutput, initial_recycled_batch, run_network
from model.training.data.data import CENTI, ChainSet, Split
from model.training.data.sampling import Sampler, TrainingSampleSettings
from model.training.runtime.execution import Execution

TOLERANCE = 1e-5


def random_network(config: ModelConfig) -> AlphaFold:
    return build_network(config, random_parameters(config))


def draw_batch(chains: ChainSet, split: Split, settings: TrainingSampleSettings) -> dict[str, torch.Tensor]:
    """Return four samples, with padding after the last residue."""
    arrays = Sampler(chains, split, settings, seed=5).batch(0, 4, crop=44)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@pytest.fixture(scope="module")
def network(network_config: ModelConfig) -> AlphaFold:
    return random_network(network_config)


@pytest.fixture(scope="module")
def batch(chains: ChainSet, split: Split) -> dict[str, torch.Tensor]:
    """Return samples with and without templates."""
    settings = TrainingSampleSettings(msa_rows=5, extra_rows=3, template_rate=0.7, few_clusters_rate=1.0)
    return draw_batch(chains, split, settings)


@pytest.fixture(scope="module")
def network_without_templates(network_config: ModelConfig) -> AlphaFold:
    return random_network(replace(network_config, template=None))


@pytest.fixture(scope="module")
def batch_without_templates(chains: ChainSet, split: Split) -> dict[str, torch.Tensor]:
    """Return samples without templates, with padding after the last rows too."""
    settings = TrainingSampleSettings(msa_rows=12, extra_rows=60, templates=0, few_clusters_rate=1.0)
    return draw_batch(chains, split, settings)


def inference_features(batch: dict[str, torch.Tensor], sample: int) -> dict[str, torch.Tensor]:
    """Return the features of one sample as the inference network takes them."""
    features = network_features(batch, torch.float32)
    extra = batch["extra_msa"][sample].long()
    names = ("aatype", "residue_index", "target_feat", "msa_feat", "seq_mask", "msa_mask", "extra_msa_mask")
    inference = {name: features[name][sample] for name in names} | {
        "extra_msa": extra,
        "extra_has_deletion": torch.zeros(extra.shape),
        "extra_deletion_value": torch.zeros(extra.shape),
    }
    if not batch["template_mask"].shape[1]:
        return inference
    aatype = batch["template_aatype"][sample].long()
    atoms, masks = [], []
    for slot, types in enumerate(aatype.clip(max=residue_constants.UNKNOWN)):
        atom14 = batch["template_atom14"][sample, slot].float() * CENTI
        present = unpack_atoms(batch["template_atom_bits"][sample, slot])
        positions, exists = atom14_to_atom37_positions(types, atom14)
        mask = torch.gather(present, 1, residue_rows(residue_constants.atom37_to_atom14, types)) * exists
        atoms.append(positions * mask[..., None])
        masks.append(mask)
    return inference | {
        "template_mask": features["template_mask"][sample],
        "template_aatype": aatype,
        "template_all_atom_positions": torch.stack(atoms),
        "template_all_atom_masks": torch.stack(masks),
    }


def difference(value: torch.Tensor, expected: torch.Tensor) -> float:
    return float((value - expected).abs().max() / expected.abs().max())


def run(network: AlphaFold, batch: dict[str, torch.Tensor], execution: Execution) -> list[NetworkOutput]:
    """Run two passes without dropout."""
    features = network_features(batch, torch.float32)
    recycled = initial_recycled_batch(network, features, torch.float32)
    outputs = []
    for _ in range(2):
        outputs.append(run_network(network, features, recycled, torch.zeros(()), execution))
        recycled = outputs[-1].recycled
    return outputs


def test_network_equals_inference_network(network: AlphaFold, batch: dict[str, torch.Tensor]) -> None:
    assert 0 < int(batch["template_mask"][:, 0].sum()) < 4
    check_against_inference(network, batch)


def test_network_without_templates_equals_inference_network(
    network_without_templates: AlphaFold, batch_without_templates: dict[str, torch.Tensor]
) -> None:
    for mask in ("row_mask", "extra_row_mask", "seq_mask"):
        assert not batch_without_templates[mask].all()
    check_against_inference(network_without_templates, batch_without_templates)


def check_against_inference(network: AlphaFold, batch: dict[str, torch.Tensor]) -> None:
    """Compare two passes of the differentiable network with the inference network, apart from padding."""
    with torch.no_grad():
        outputs = run(network, batch, Execution())
        for sample in range(4):
            features = inference_features(batch, sample)
            first = network.run_pass(features, network.initial_state(features))
            passes = network(features), network(features, first.recycled_state())
            length, rows = int(features["seq_mask"].sum()), int(features["msa_mask"][:, 0].sum())
            for output, expected in zip(outputs, passes, strict=True):
                atoms, _ = atom14_to_atom37_positions(
                    features["aatype"][:length], output.structure.atom14[sample, :length]
                )
                positions = expected["structure_module/final_atom_positions"][:length]
                assert difference(atoms, positions) < TOLERANCE
                for name, logits in output.logits.items():
                    value, reference = logits[sample], expected[f"{name}/logits"]
                    if name == "masked_msa":
                        value, reference = value[:rows, :length], reference[:rows, :length]
                    elif value.dim() == 3 and value.shape[0] == value.shape[1]:
                        value, reference = value[:length, :length], reference[:length, :length]
                    else:
                        value, reference = value[:length], reference[:length]
                    assert difference(value, reference) < TOLERANCE, name


def test_batch_of_one_equals_batch_of_four(network: AlphaFold, batch: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        whole = run(network, batch, Execution())[1]
        single = run(network, {name: x[1:2] for name, x in batch.items()}, Execution())[1]
    assert difference(single.logits["distogram"], whole.logits["distogram"][1:2]) < TOLERANCE


def test_checkpointed_blocks_give_the_same_gradients(
    network_config: ModelConfig, batch: dict[str, torch.Tensor]
) -> None:
    network = random_network(network_config).requires_grad_(True)
    weights = LossWeights(predicted_aligned_error=0.1, experimentally_resolved=0.01, violation=1.0)
    gradients = []
    for execution in (Execution(), Execution(checkpoint_blocks=True)):
        network.zero_grad()
        torch.manual_seed(1)
        features = network_features(batch, torch.float32)
        recycled = initial_recycled_batch(network, features, torch.float32)
        output = run_network(network, features, recycled, torch.ones(()), execution)
        losses, _ = total_loss(output, make_targets(batch), weights, execution)
        losses.mean().backward()
        gradients.append(
            {name: x.grad.clone() for name, x in network.named_parameters() if x.grad is not None}
        )
    assert gradients[0].keys() == dict(network.named_parameters()).keys()
    for name, gradient in gradients[0].items():
        assert torch.isfinite(gradient).all(), name
        assert torch.equal(gradient, gradients[1][name]), name


def test_dropout_changes_the_output(network: AlphaFold, batch: dict[str, torch.Tensor]) -> None:
    features = network_features(batch, torch.float32)
    recycled = initial_recycled_batch(network, features, torch.float32)
    outputs = []
    with torch.no_grad():
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            outputs.append(run_network(network, features, recycled, torch.ones(()), Execution()))
    logits = [output.logits["distogram"].numpy() for output in outputs]
    assert np.array_equal(logits[0], logits[1]) and not np.array_equal(logits[0], logits[2])
