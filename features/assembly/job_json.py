"""The molecules of a job as JSON values, without alignments and templates, and the job of such values."""

from typing import Any

from features.assembly.job import Bond, BondedAtom, Entity, Ligand, Modification, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind


def job_to_json(job: MoleculeJob) -> dict[str, Any]:
    """Return the molecules and bonds of a job as JSON values, equal for equal molecules."""
    return {
        "entities": [_entity_to_json(entity) for entity in job.entities],
        "bonds": [
            [[end.chain, end.residue, end.atom] for end in (bond.first, bond.second)] for bond in job.bonds
        ],
        "components": job.components,
    }


def job_of_json(content: dict[str, Any], name: str = "job") -> MoleculeJob:
    """Return the job of the values that `job_to_json` returns.

    Raises:
        LookupError, TypeError, ValueError: other values.
    """
    bonds = tuple(Bond(BondedAtom(*first), BondedAtom(*second)) for first, second in content["bonds"])
    entities = tuple(_entity_of_json(entity) for entity in content["entities"])
    return MoleculeJob(name, entities, bonds, components=content["components"])


def _entity_to_json(entity: Entity) -> dict[str, Any]:
    chains = list(entity.chains)
    if isinstance(entity, Ligand):
        return {"chains": chains, "codes": list(entity.codes), "smiles": entity.smiles}
    modifications = sorted([item.position, item.code] for item in entity.modifications)
    return {
        "chains": chains,
        "kind": entity.kind.name,
        "sequence": entity.sequence,
        "modifications": modifications,
        "is_cyclic": entity.is_cyclic,
    }


def _entity_of_json(content: dict[str, Any]) -> Entity:
    chains = tuple(content["chains"])
    if "kind" not in content:
        return Ligand(chains, tuple(content["codes"]), content["smiles"])
    return Polymer(
        MoleculeKind[content["kind"]],
        content["sequence"],
        chains,
        tuple(Modification(position, code) for position, code in content["modifications"]),
        is_cyclic=content["is_cyclic"],
    )
