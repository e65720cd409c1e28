"""Record the losses of OpenFold3's code, and their gradients' norms, for test_losses.py.

Run it from the root of the repository in an environment with openfold3 0.5.0:

    PYTHONPATH=. python tests/model/training/alphafold3/record_losses.py

It writes data/losses.json next to this file.
"""

import json
from pathlib import Path

import torch
from openfold3.core.loss import diffusion
from openfold3.core.loss.loss_module import OpenFold3Loss
from openfold3.projects.of3_all_atom.config.model_config import model_config

from tests.model.training.alphafold3.cases import Case, cases

OUTPUTS = {
    "denoised": "atom_positions_diffusion",
    "sigmas": "noise_level",
    "positions": "atom_positions_predicted",
    "distogram": "distogram_logits",
    "plddt": "plddt_logits",
    "pae": "pae_logits",
    "pde": "pde_logits",
    "resolved": "experimentally_resolved_logits",
}
NAMES = {"mse": "position", "experimentally_resolved": "resolved"}
WEIGHTS = {
    "mse": 4.0,
    "bond": 4.0,
    "smooth_lddt": 4.0,
    "distogram": 3e-2,
    "plddt": 1e-4,
    "pae": 1e-4,
    "pde": 1e-4,
    "experimentally_resolved": 1e-4,
}


def batch_of(case: Case, weights: dict[str, float]) -> dict:
    """Return a batch of one sample with the axis of structures."""

    def tensor(x: object) -> torch.Tensor:
        return torch.as_tensor(x).double()[None, None]

    batch = {name: tensor(x) for name, x in case.features.items()}
    batch["ground_truth"] = {
        "atom_positions": tensor(case.positions),
        "atom_resolved_mask": tensor(case.resolved),
    }
    batch["loss_weights"] = {name: torch.tensor([[weight]]).double() for name, weight in weights.items()}
    return batch


def outputs_of(case: Case) -> dict[str, torch.Tensor]:
    """Return the outputs of a network by OpenFold3's names, as leaves."""
    result = {}
    for name, value in case.outputs.items():
        x = torch.as_tensor(value).double()[None]
        x = x if name in ("denoised", "sigmas") else x[:, None]
        result[OUTPUTS[name]] = x.requires_grad_(name != "sigmas")
    return result


def record(case: Case) -> dict[str, float | list[float]]:
    """Return each loss alone, the total, and the norms of its gradient by output."""
    module = OpenFold3Loss(model_config.architecture.loss_module)
    settings = model_config.architecture.loss_module
    batch, outputs = batch_of(case, WEIGHTS), outputs_of(case)
    total, terms = module.loss(batch, outputs)
    total.backward()
    inverse = {theirs: ours for ours, theirs in OUTPUTS.items()}
    record: dict[str, float | list[float]] = {"total": total.item()}
    for name, x in outputs.items():
        if x.grad is not None and bool(x.grad.any()):
            record[f"gradient/{inverse[name]}"] = float(x.grad.norm())
    for name in WEIGHTS:
        record[NAMES.get(name, name)] = float(terms[f"{name}_loss"])
    for name in ("mse", "bond", "smooth_lddt"):
        function = getattr(diffusion, f"{name}_loss")
        arguments = {"x": outputs["atom_positions_diffusion"], "batch": batch, "eps": settings.diffusion.eps}
        if name != "bond":
            arguments["loss_token_mask"] = torch.ones_like(batch["is_protein"])
        if name == "mse":
            arguments |= {"dna_weight": 5.0, "rna_weight": 5.0, "ligand_weight": 10.0}
        record[f"copies/{NAMES.get(name, name)}"] = function(**arguments)[0].tolist()
    return record


if __name__ == "__main__":
    target = Path(__file__).parent / "data" / "losses.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({name: record(case) for name, case in cases().items()}, indent=1) + "\n")
