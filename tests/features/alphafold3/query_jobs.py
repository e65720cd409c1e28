"""The jobs of jobs.json, in the form that the featuriser takes."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from features.assembly.job import Bond, BondedAtom, Entity, Ligand, Modification, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from msa.alignments.files import Alignment, parse_alignment

FOLDER = Path(__file__).parent


@cache
def read_jobs() -> dict[str, MoleculeJob]:
    return {content["name"]: _job(content) for content in json.loads((FOLDER / "jobs.json").read_text())}


def _job(content: dict[str, Any]) -> MoleculeJob:
    bonds = tuple(Bond(BondedAtom(*first), BondedAtom(*second)) for first, second in content.get("bonds", []))
    return MoleculeJob(content["name"], tuple(_entity(chain) for chain in content["chains"]), bonds)


def _entity(chain: dict[str, Any]) -> Entity:
    chains = tuple(chain["chain_ids"])
    if chain["molecule_type"] == "ligand":
        codes = (chain["ccd_codes"],) if "ccd_codes" in chain else ()
        return Ligand(chains, codes, chain.get("smiles"))
    return Polymer(
        MoleculeKind[chain["molecule_type"].upper()],
        chain["sequence"],
        chains,
        tuple(
            Modification(int(position), code)
            for position, code in chain.get("non_canonical_residues", {}).items()
        ),
        _alignment(chain.get("main_msa")),
        _alignment(chain.get("paired_msa")),
        is_cyclic=chain.get("cyclic", False),
    )


def _alignment(text: str | None) -> Alignment | None:
    return None if text is None else parse_alignment(text.encode())
