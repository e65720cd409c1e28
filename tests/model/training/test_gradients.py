"""The loss and the gradients of the whole network equal those of DeepMind's code; see record_gradients.py.

In float64, where both can be computed in it, they agree better than in float32, whose errors depend on the
processor. The network with templates is recorded in float32: the values of torsion angles that a template's
atoms do not define depend on the precision.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from model.alphafold2.modules.embedders import pseudo_beta
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.deepmind import parameter_key
from model.training.alphafold2 import violations
from model.training.alphafold2.features import Targets, make_targets, template_features
from model.training.alphafold2.losses import LossWeights, total_loss
from model.training.alphafold2.network import RecycledBatch, run_network
from model.training.data.data import CENTI
from model.training.runtime.execution import Execution
from msa.base.residues import ATOM14_NAMES, ATOM37, RESTYPE_NAMES

PASS = 1
# gradients that are zero but for rounding, such as those of a constant that softmax removes, are smaller
SMALLEST = 1e-3
# elements of each gradient that were recorded
SAMPLE = 128
WEIGHTS = LossWeights(predicted_aligned_error=0.1, experimentally_resolved=0.01, violation=1.0)

Arrays = dict[str, np.ndarray]


# tolerance: relative to the root mean square of a parameter's gradient
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [("model_1_ptm", torch.float32, 1e-4), ("model_3_ptm", torch.float64, 5e-5)],
)
def test_gradients_match_deepmind(
    name: str,
    dtype: torch.dtype,
    tolerance: float,
    parity: ModuleType,
    parity_data: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if dtype == torch.float64:
        request.getfixturevalue("everything_in_float64")
    with np.load(Path(__file__).parent / "data" / "deepmind_gradients.npz") as archive:
        recorded = {key.removeprefix(f"{name}/"): archive[key] for key in archive.files if name in key}
        bounds = archive["bounds"]
    # DeepMind's bounds of distances within residues come from a table that foldcli does not contain
    monkeypatch.setattr(violations, "within_residue_bounds", lambda: bounds)
    with np.load(parity_data.DATA / f"{name.removesuffix('_ptm')}_features.npz") as archive:
        arrays = dict(archive)
    if dtype == torch.float64:
        arrays = {key: x.astype(np.float64) if x.dtype == np.float32 else x for key, x in arrays.items()}
    network = parity.parity_network(f"{name}_2_blocks").to(dtype).requires_grad_(True)
    execution = Execution(dtype)
    recycled = previous_pass(network, arrays)
    output = run_network(network, network_features(arrays), recycled, torch.zeros(()), execution)
    loss, _ = total_loss(output, targets(recorded, arrays), WEIGHTS, execution)
    loss.sum().backward()
    # DeepMind multiplies by the root of the length where it averages over samples
    scale = arrays["aatype"].shape[1] ** -0.5
    assert float(loss.detach()) * scale == pytest.approx(float(recorded["loss"]), rel=tolerance / 10)
    differences = {
        key: parity.rms(parity_data.sample_rows(key, gradient * scale, SAMPLE) - recorded[f"gradient/{key}"])
        / max(float(recorded[f"rms/{key}"]), SMALLEST)
        for key, gradient in gradients(network).items()
    }
    assert len(differences) == sum(key.startswith("gradient/") for key in recorded)
    assert {key: x for key, x in differences.items() if not x < tolerance} == {}


def gradients(network: AlphaFold) -> Arrays:
    """Return the gradient of every parameter by DeepMind's key, those of a stack's blocks stacked."""
    stacks: dict[str, list[np.ndarray]] = {}
    whole = {}
    for tensor_name, parameter in network.named_parameters():
        key, block, _ = parameter_key(tensor_name)
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if block is None:
            whole[key] = gradient.numpy().astype(np.float64)
        else:
            stacks.setdefault(key, []).append(gradient.numpy().astype(np.float64))
    return whole | {key: np.stack(blocks) for key, blocks in stacks.items()}


def previous_pass(network: AlphaFold, arrays: Arrays) -> RecycledBatch:
    """Return the result of the first pass."""
    features = feature_tensors(arrays, PASS - 1, torch.device("cpu"))
    with torch.no_grad():
        state = network.run_pass(features, network.initial_state(features)).recycled_state()
    beta = pseudo_beta(features["aatype"], state.positions)
    return RecycledBatch(state.msa_first_row[None], state.pair[None], beta[None])


def network_features(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Return the features of `run_network` for a pass of a parity set."""
    batch = {name: torch.from_numpy(array[PASS])[None] for name, array in arrays.items() if array.ndim > 1}
    extra = [
        F.one_hot(batch["extra_msa"].long(), 23).float(),
        batch["extra_has_deletion"][..., None],
        batch["extra_deletion_value"][..., None],
    ]
    names = ("residue_index", "target_feat", "msa_feat", "msa_mask", "seq_mask", "extra_msa_mask")
    features = {name: batch[name] for name in names} | {
        "aatype": batch["aatype"].long(),
        "extra_msa_feat": torch.cat(extra, dim=-1),
    }
    if "template_mask" not in batch:
        return features
    slots = torch.tensor(
        [[ATOM37.index(atom) for atom in ATOM14_NAMES[name]] + [0] * (14 - len(ATOM14_NAMES[name]))
         for name in (*RESTYPE_NAMES, RESTYPE_NAMES[-1])]
    )  # fmt: skip
    chosen = slots[batch["template_aatype"].long()]  # [1, T, N, 14]
    positions, masks = batch["template_all_atom_positions"], batch["template_all_atom_masks"]
    exists = torch.tensor([len(ATOM14_NAMES[name]) for name in (*RESTYPE_NAMES, RESTYPE_NAMES[-1])])
    present = torch.gather(masks, 3, chosen) * (
        torch.arange(14) < exists[batch["template_aatype"].long()][..., None]
    )
    assert present.sum() == masks.sum()
    templates = {
        "template_aatype": batch["template_aatype"],
        "template_mask": batch["template_mask"],
        "template_atom14": torch.gather(positions, 3, chosen[..., None].expand(*chosen.shape, 3)) / CENTI,
        "template_atom_bits": (present.int() << torch.arange(14, dtype=torch.int32)).sum(-1).to(torch.int16),
    }
    return features | template_features(templates, torch.float32)


def targets(recorded: Arrays, arrays: Arrays) -> Targets:
    """Return the recorded structure as targets."""
    length = arrays["aatype"].shape[1]
    bits = (recorded["mask"].astype(np.int16) << np.arange(14, dtype=np.int16)).sum(axis=1, dtype=np.int16)
    batch = {
        "aatype": arrays["aatype"][PASS],
        "seq_mask": np.ones(length, np.float32),
        "atom14": recorded["atom14"],
        "atom_bits": bits,
        "break_before": np.diff(arrays["residue_index"][PASS], prepend=-2) != 1,
        "clamped": np.float32(1.0),
        "full_atom": np.float32(1.0),
        "true_msa": arrays["true_msa"][PASS],
        "bert_mask": arrays["bert_mask"][PASS],
    }
    return make_targets({name: torch.from_numpy(np.asarray(value))[None] for name, value in batch.items()})
