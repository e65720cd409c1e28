"""Prediction: passes through the network until the structure settles, and the confidence in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from cuda.fused.chunking import chunk_budget
from model import residue_constants
from model.alphafold import AlphaFold, Pass
from model.confidence import aligned_error, plddt
from model.templates import TEMPLATE_FEATURES

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class RecyclingSettings:
    """How long to recycle.

    Args:
        num_recycles: passes after the first.
        early_stop_tolerance: stop when CA distances changed by less than this since the pass before (root
            mean square over all pairs, Å), as ColabFold does; 0 never stops.
    """

    num_recycles: int = 3
    early_stop_tolerance: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """A structure and the confidence in it: arrays on the CPU.

    Args:
        aatype: [N] int, codes into `residue_constants.RESTYPE_NAMES`.
        residue_index: [N] int, 0-based.
        atom_positions: [N, 37, 3] float32, Å.
        atom_mask: [N, 37] float32, 1 for atoms that the residue type has.
        plddt: [N] float64, 0 to 100.
        ptm: 0 to 1, or None for networks without a PAE head.
        pae: [N, N] float32, Å, or None.
        max_pae: the largest value that PAE can have, Å, or None.
        num_recycles: passes done after the first.
        tolerances: change of the CA distances at each recycle, Å; empty when there was none.
    """

    aatype: np.ndarray
    residue_index: np.ndarray
    atom_positions: np.ndarray
    atom_mask: np.ndarray
    plddt: np.ndarray
    ptm: float | None
    pae: np.ndarray | None
    max_pae: float | None
    num_recycles: int
    tolerances: tuple[float, ...]


def distance_change(before: torch.Tensor, after: torch.Tensor, mask: torch.Tensor | None) -> float:
    """Root mean square change of all CA distances, Å, as ColabFold defines its tolerance.

    Args:
        before, after: [N, 37, 3], Å.
        mask: [N], 1 for residues that count, or None for all.
    """
    weights = before.new_ones(before.shape[0]) if mask is None else mask
    points = (x[:, residue_constants.CA].double() for x in (before, after))
    old, new = (torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") for x in points)
    squared = (old - new).square() * (weights[:, None] * weights[None])  # [N, N]
    return float((squared.sum() / weights.sum().double().square() + 1e-8).sqrt())


MASKS = frozenset({"seq_mask", "msa_mask", "extra_msa_mask"})
USED = TEMPLATE_FEATURES | {
    "aatype",
    "residue_index",
    "target_feat",
    "msa_feat",
    "extra_msa",
    "extra_has_deletion",
    "extra_deletion_value",
}


def feature_tensors(
    features: Mapping[str, np.ndarray], iteration: int, device: torch.device
) -> dict[str, torch.Tensor]:
    """The features of one iteration that the network uses, as int64 and float32 tensors.

    On their way to a GPU they wait for nothing, and the caller does not wait for them.

    Args:
        features: with a leading axis of iterations.
        iteration: 0-based.
        device: where the network runs.
    """
    needed = [name for name in MASKS & features.keys() if not features[name][iteration].all()]
    tensors = {}
    for name in (*needed, *(USED & features.keys())):
        tensor = torch.from_numpy(np.ascontiguousarray(features[name][iteration]))
        wide = torch.float32 if tensor.is_floating_point() else torch.int64
        if device.type == "cpu" or name == "template_mask":
            tensors[name] = tensor.to(wide)
        else:
            tensors[name] = tensor.pin_memory().to(device, non_blocking=True).to(wide)
    return tensors


def predict(
    network: AlphaFold,
    features: Mapping[str, np.ndarray],
    settings: RecyclingSettings | None = None,
    progress: Progress | None = None,
    chunk_elements: int | None = None,
) -> Prediction:
    """Predict a structure.

    Args:
        network: ready to run.
        features: as `AlphaFold.forward` takes them, each with a leading axis of iterations, at least
            num_recycles + 1 long.
        settings: how long to recycle; default three recycles.
        progress: called after each pass.
        chunk_elements: as a `model.memory_plan.MemoryPlan` has them, or None for those usual on the device.

    Raises:
        ValueError: there are features for fewer iterations than asked for.
    """
    settings = settings or RecyclingSettings()
    passes = settings.num_recycles + 1
    if features["aatype"].shape[0] < passes:
        raise ValueError(f"{passes} passes need as many draws of features, not {features['aatype'].shape[0]}")
    device = network.evoformer.single_activations.bias.device
    tolerances: list[float] = []
    with torch.inference_mode(), chunk_budget(chunk_elements):
        current = feature_tensors(features, 0, device)
        mask = current.get("seq_mask")
        previous = network.first_recycled(current)
        iteration = 0
        while True:
            done = network.run_pass(current, previous)
            last = iteration + 1 == passes
            if not last:
                # before the pass is waited for, so that they are there when it ends
                current = feature_tensors(features, iteration + 1, device)
            # the one thing in a pass that the CPU waits for; the first pass has nothing to be compared with
            change = distance_change(previous.positions, done.positions, mask)
            if iteration:
                tolerances.append(change)
            if progress is not None:
                progress(iteration + 1, passes)
            if last or (tolerances and tolerances[-1] < settings.early_stop_tolerance):
                return _prediction(network, features, done, tuple(tolerances))
            previous = done.recycled()
            del done  # its MSA representation need not outlive the next pass
            iteration += 1


def _prediction(
    network: AlphaFold, features: Mapping[str, np.ndarray], done: Pass, tolerances: tuple[float, ...]
) -> Prediction:
    error = None
    if network.config.predicted_aligned_error:
        error = aligned_error(done.representations.pair, network.heads["predicted_aligned_error_head"])
    return Prediction(
        aatype=features["aatype"][0].astype(np.int64),
        residue_index=features["residue_index"][0].astype(np.int64),
        atom_positions=done.positions.cpu().numpy(),
        atom_mask=done.atom_mask.cpu().numpy(),
        plddt=plddt(network.heads["predicted_lddt_head"](done.structure_activations)),
        ptm=None if error is None else error.ptm,
        pae=None if error is None else error.pae,
        max_pae=None if error is None else error.max_pae,
        num_recycles=len(tolerances),
        tolerances=tolerances,
    )
