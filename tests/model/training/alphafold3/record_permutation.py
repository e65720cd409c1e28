"""Record OpenFold3's assignment of experimental atoms to predicted ones, for test_permutation.py.

Run it from the root of the repository in an environment with openfold3 0.5.0:

    PYTHONPATH=. python tests/model/training/alphafold3/record_permutation.py

It writes data/permutation.json next to this file.
"""

from pathlib import Path

import numpy as np
import torch
from openfold3.core.utils.permutation_alignment import single_batch_multi_chain_permutation_alignment

from tests.model.training.alphafold3.symmetric_cases import (
    CASES,
    RESIDUE_ATOMS,
    SymmetricCase,
    Table,
    make_case,
)


def features(table: Table) -> dict[str, torch.Tensor]:
    """Return the features of tokens and atoms, all of proteins of alanine and ligands."""
    tokens = len(table.entity)
    ligand = torch.as_tensor(table.is_ligand).int()
    return {
        "token_mask": torch.ones(tokens),
        "atom_mask": torch.ones(len(table.positions)),
        "mol_entity_id": torch.as_tensor(table.entity),
        "mol_sym_id": torch.as_tensor(table.copy),
        "mol_sym_component_id": torch.as_tensor(table.component),
        "mol_sym_token_index": torch.as_tensor(table.index),
        "num_atoms_per_token": torch.as_tensor(table.counts),
        "start_atom_index": torch.as_tensor(np.cumsum(table.counts) - table.counts),
        "restype": torch.nn.functional.one_hot(20 * ligand.long(), 32),
        "is_ligand": ligand,
        "is_atomized": ligand,
        "is_protein": 1 - ligand,
        "is_rna": 0 * ligand,
        "is_dna": 0 * ligand,
    }


def record(case: SymmetricCase) -> list[int]:
    """Return the experimental atom of each predicted atom."""
    batch: dict = features(case.crop)
    keys = list(zip(case.crop.entity, case.crop.copy, case.crop.component, strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    conformer = np.repeat([numbers[key] for key in keys], case.crop.counts)
    identity = np.arange(RESIDUE_ATOMS)[None]
    batch["ref_space_uid"] = torch.as_tensor(conformer)
    batch["ref_space_uid_to_perm"] = {
        number: torch.as_tensor(case.symmetries.get(tuple(map(int, key)), identity))
        for key, number in numbers.items()
    }
    batch["ground_truth"] = features(case.experiment) | {
        "atom_positions": torch.as_tensor(case.experiment.positions),
        "atom_resolved_mask": torch.as_tensor(case.experiment.resolved).double(),
    }
    return single_batch_multi_chain_permutation_alignment(batch, torch.as_tensor(case.predicted)).tolist()


if __name__ == "__main__":
    target = Path(__file__).parent / "data" / "permutation.json"
    recorded = {seed: record(make_case(seed)) for seed in range(CASES)}
    target.write_text("{\n" + ",\n".join(f'"{seed}": {x}' for seed, x in recorded.items()) + "\n}\n")
