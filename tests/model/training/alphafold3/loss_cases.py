"""Cases of the all-atom losses as tensors."""

from dataclasses import replace
from typing import NamedTuple

import torch

from model.alphafold3.heads import ConfidenceLogits
from model.alphafold3.inputs import AlphaFold3Inputs
from model.training.alphafold3.losses import AllAtomLossWeights, TrainingOutput
from model.training.alphafold3.targets import AtomTargets
from tests.model.training.alphafold3.cases import Case

WEIGHTS = replace(AllAtomLossWeights(), bond=4.0)
SIGMA_DATA = 16.0


class Batch(NamedTuple):
    """A case as tensors."""

    inputs: AlphaFold3Inputs
    targets: AtomTargets
    output: TrainingOutput


def load(case: Case, dtype: torch.dtype = torch.float64) -> Batch:
    """Convert a case to tensors, of which the outputs are leaves."""
    tensors = {
        name: torch.tensor(x, dtype=dtype, requires_grad=name != "sigmas") for name, x in case.outputs.items()
    }
    logits = ConfidenceLogits(*(tensors.pop(name) for name in ("plddt", "resolved", "pae", "pde")))
    targets = AtomTargets(*(torch.tensor(x, dtype=dtype) for x in (case.positions, case.resolved)))
    inputs = AlphaFold3Inputs.from_arrays(case.features, dtype=dtype)
    return Batch(inputs, targets, TrainingOutput(confidence=logits, **tensors))
