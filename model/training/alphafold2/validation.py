"""Scores of a network on held-out chains."""

import numpy as np
import torch

from model.alphafold2.modules.heads import distogram_edges
from model.alphafold2.network import AlphaFold
from model.prediction import CONTACT_DISTANCE
from model.training.alphafold2.features import Targets, make_targets, network_features
from model.training.alphafold2.losses import distogram_loss, lddt_ca
from model.training.alphafold2.network import NetworkOutput, initial_recycled_batch, run_network
from model.training.data.sampling import Sampler
from model.training.runtime.execution import Execution
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase

LONG_RANGE = 24  # smallest sequence separation, in residues
PASSES = 3  # passes of each prediction
# names of the columns of `chain_scores`
SCORES = ("distogram", "contact_precision", "lddt_ca", "plddt", "plddt_error")


@torch.no_grad()
def validate(
    network: AlphaFold,
    sampler: Sampler,
    held_out: np.ndarray,
    phase: Phase,
    execution: Execution,
    processes: TrainingProcesses,
) -> dict[str, float]:
    """Score predictions of the central crops of chains, without dropout; the processes take batches in turn.

    Crops and batches are those of training, so that functions compiled for training are reused.

    Returns:
        The means of the scores in SCORES.
    """
    device, crop, batch = processes.device, phase.crop, phase.micro_batch
    sums = torch.zeros(len(SCORES) + 1, dtype=torch.float64, device=device)
    dropout = torch.zeros((), device=device)
    starts = range(0, len(held_out), batch)
    for start in list(starts)[processes.rank :: processes.count]:
        chains = held_out[start : start + batch]
        padded = np.full(batch, -1)
        padded[: len(chains)] = chains
        arrays = sampler.held_out_batch(padded, crop)
        tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        features, targets = network_features(tensors, execution.dtype), make_targets(tensors)
        recycled = initial_recycled_batch(network, features, execution.dtype)
        for _ in range(PASSES):
            output = run_network(network, features, recycled, dropout, execution)
            recycled = output.recycled
        scores = chain_scores(output, targets)[: len(chains)].double()
        sums += torch.cat([scores.sum(dim=0), scores.new_full((1,), len(chains))])
    processes.add(sums)
    *totals, count = sums.tolist()
    return {name: total / max(count, 1.0) for name, total in zip(SCORES, totals, strict=True)}


def chain_scores(output: NetworkOutput, targets: Targets) -> torch.Tensor:
    """Return the scores of each sample, [B, 5].

    They are the distogram's cross-entropy; the precision of the L/5 most probable long-range contacts; the
    mean lDDT of CA; the mean pLDDT, 0 to 1; and the mean absolute difference of the two by residue.
    """
    alpha_mask = targets.atom14_mask[:, :, 1]
    lddt = lddt_ca(output.structure.atom14[:, :, 1], targets.atom14[:, :, 1], alpha_mask)
    logits = output.logits["predicted_lddt"]
    bins = logits.shape[-1]
    centers = (torch.arange(bins, device=logits.device) + 0.5) / bins
    plddt = torch.softmax(logits, dim=-1) @ centers
    count = alpha_mask.sum(dim=1) + 1e-8
    return torch.stack(
        [
            distogram_loss(output.logits["distogram"], targets.beta, targets.beta_mask),
            contact_precision(output.logits["distogram"], targets.beta, targets.beta_mask),
            (lddt * alpha_mask).sum(dim=1) / count,
            (plddt * alpha_mask).sum(dim=1) / count,
            ((plddt - lddt).abs() * alpha_mask).sum(dim=1) / count,
        ],
        dim=1,
    )


def contact_precision(logits: torch.Tensor, beta: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the `long_range_precision` [B] of the contacts in a distogram's logits [B, N, N, 64]."""
    last_contact_bin = (distogram_edges(logits.device) <= CONTACT_DISTANCE).sum()
    probability = torch.softmax(logits, dim=-1)[..., : int(last_contact_bin) + 1].sum(dim=-1)  # [B, N, N]
    return long_range_precision(probability, beta, mask)


def long_range_precision(score: torch.Tensor, beta: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the fraction of true contacts among the L/5 highest scores at least 24 residues apart, [B].

    Scores [B, N, N] are at least 0; only the half above the diagonal is used. Positions of CB are [B, N, 3],
    Å; L is the sum of the mask [B, N].
    """
    length = mask.shape[1]
    index = torch.arange(length, device=mask.device)
    is_long_range = (index[None] - index[:, None] >= LONG_RANGE).float()
    pairs = mask[:, :, None] * mask[:, None] * is_long_range
    best = torch.where(pairs > 0, score, -1.0).flatten(1).topk(max(1, length // 5), dim=1).indices
    is_contact = (beta[:, :, None] - beta[:, None]).square().sum(dim=-1) < CONTACT_DISTANCE**2
    correct = torch.gather((is_contact * pairs).flatten(1), 1, best)
    count = (mask.sum(dim=1) / 5).floor().clip(min=1.0)
    is_counted = torch.arange(best.shape[1], device=mask.device) < count[:, None]
    return (correct * is_counted).sum(dim=1) / count
