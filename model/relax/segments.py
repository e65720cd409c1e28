"""Bonded stretches of protein residues, read from a structure for relaxation and written back to it."""

from dataclasses import dataclass

import gemmi
import numpy as np
from openmm import app

from model.errors import RelaxError
from msa.base.residues import ATOM14_NAMES

_MAX_BOND = 2.5  # Å; consecutive residues further apart than this (C-N) are not bonded
_BACKBONE = ("N", "CA", "C")


@dataclass(frozen=True)
class Segment:
    """A bonded stretch of residues of one chain."""

    chain: str
    residues: list[gemmi.Residue]


def read_segments(structure: gemmi.Structure) -> tuple[list[Segment], list[str]]:
    """Return the bonded stretches of protein residues without hydrogens, and lines about what was left out.

    Raises:
        RelaxError: there is no protein, or an atom has invalid coordinates.
    """
    if len(structure) == 0:
        raise RelaxError("no coordinates")
    structure = structure.clone()
    structure.remove_hydrogens()
    structure.setup_entities()
    left_out: list[str] = []
    segments = [segment for chain in structure[0] for segment in _chain_segments(chain, left_out)]
    # the force field has no template for a residue that is both ends of a chain
    for segment in segments:
        if len(segment.residues) == 1:
            left_out.append(f"{segment.residues[0].name} {segment.chain}{segment.residues[0].seqid}")
    segments = [segment for segment in segments if len(segment.residues) > 1]
    if not segments:
        raise RelaxError("no protein chain with at least 2 residues")
    names = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else "")
    return segments, [f"left out: {names}"] if left_out else []


def _chain_segments(chain: gemmi.Chain, left_out: list[str]) -> list[Segment]:
    """Return the bonded stretches of a chain; what is not part of them is added to `left_out`."""
    segments: list[Segment] = []
    previous: gemmi.Residue | None = None
    for residue in chain:
        name = f"{residue.name} {chain.name}{residue.seqid}"
        backbone = [residue.find_atom(atom, "*") for atom in _BACKBONE]
        if residue.name not in ATOM14_NAMES or residue.name == "UNK" or None in backbone:
            if not gemmi.find_tabulated_residue(residue.name).is_water():
                left_out.append(name)
            previous = None
            continue
        left_out += [f"atom {atom} of {name}" for atom in _remove_unknown_atoms(residue)]
        if not np.isfinite([atom.pos.tolist() for atom in residue]).all():
            raise RelaxError(f"{name} has invalid coordinates")
        if previous is None or not _is_bonded(previous, residue):
            segments.append(Segment(chain.name, []))
        segments[-1].residues.append(residue)
        previous = residue
    return segments


def _remove_unknown_atoms(residue: gemmi.Residue) -> list[str]:
    """Remove atoms that are not part of the residue's type, and return their names."""
    known = ATOM14_NAMES.get(residue.name)
    unknown = [k for k, atom in enumerate(residue) if known and atom.name not in (*known, "OXT")]
    names = [residue[k].name for k in unknown]
    for k in reversed(unknown):
        del residue[k]
    return names


def _is_bonded(residue: gemmi.Residue, next_residue: gemmi.Residue) -> bool:
    c, n = residue.find_atom("C", "*"), next_residue.find_atom("N", "*")
    return bool(c.pos.dist(n.pos) <= _MAX_BOND)


def residues_of(topology: app.Topology, positions: np.ndarray) -> list[gemmi.Residue]:
    """Return the residues of a topology, with their atoms at positions [atoms, 3], Å."""
    residues = []
    for residue in topology.residues():
        result = gemmi.Residue()
        result.name = residue.name
        for atom in residue.atoms():
            copy = gemmi.Atom()
            copy.name, copy.element = atom.name, gemmi.Element(atom.element.symbol)
            copy.pos = gemmi.Position(*positions[atom.index])
            copy.occ = 1.0
            result.add_atom(copy)
        residues.append(result)
    return residues


def split_by_segment(residues: list[gemmi.Residue], segments: list[Segment]) -> list[list[gemmi.Residue]]:
    """Divide residues into their segments."""
    remaining = iter(residues)
    return [[next(remaining) for _ in segment.residues] for segment in segments]


def make_structure(
    original: gemmi.Structure, residues: list[gemmi.Residue], segments: list[Segment]
) -> gemmi.Structure:
    """Return relaxed residues with their original chains, numbers and B-factors."""
    chains: dict[str, gemmi.Chain] = {}
    relaxed = iter(residues)
    for segment in segments:
        chain = chains.setdefault(segment.chain, gemmi.Chain(segment.chain))
        for source in segment.residues:
            residue = next(relaxed)
            residue.seqid, residue.entity_type = source.seqid, gemmi.EntityType.Polymer
            for atom in residue:
                atom.b_iso = source[0].b_iso
            chain.add_residue(residue)
    model = gemmi.Model(1)
    for chain in chains.values():
        model.add_chain(chain)
    structure = gemmi.Structure()
    structure.name = original.name
    structure.raw_remarks = original.raw_remarks
    structure.add_model(model)
    structure.setup_entities()
    _copy_sequences(original, structure)
    structure.assign_serial_numbers()
    return structure


def _copy_sequences(original: gemmi.Structure, relaxed: gemmi.Structure) -> None:
    """Copy the full sequences of the chains from the original to the relaxed structure."""
    for chain in relaxed[0]:
        source = original[0].find_chain(chain.name)
        before = None if source is None else original.get_entity_of(source.get_polymer())
        after = relaxed.get_entity_of(chain.get_polymer())
        if before is not None and after is not None:
            after.full_sequence = before.full_sequence
