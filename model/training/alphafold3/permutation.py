"""The choice among equivalent experimental structures: copies of molecules, and symmetric atoms of residues.

Copies of a molecule, and atoms that a symmetry of a residue or ligand exchanges, have no order that a network
could predict. Before losses are computed, each atom of a crop gets the experimental atom that fits a
predicted structure best (section 4.2 of the supplement of Abramson et al., Nature 630, 493, 2024, after
section 7.3 of Evans et al., 2021). The steps are OpenFold3's: the predicted copies of one molecule, the
anchor, are aligned in turn to its experimental structure; under each alignment, each predicted molecule takes
the closest copy; the best alignment counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from model.layers.rigid import Rigid
from model.training.alphafold3.alignment import alignment
from model.training.alphafold3.targets import AtomTargets

# centres of tokens that a stable alignment needs
FEW_CENTRES = 3
# a molecule: its entity and the number of its copy
Molecule = tuple[int, int]


@dataclass(frozen=True)
class Molecules:
    """The molecules of a structure. A molecule is a chain, or several that are bonded to each other.

    Args:
        entity: int64 [N], number of the token's kind of molecule.
        copy: int64 [N], number of the molecule among those of its kind.
        index: int64 [N], number of the token in the whole molecule, ascending within each molecule.
        component: int64 [N], number of the token's residue in the whole molecule.
        is_ligand: bool [N].
        centre: int64 [N], atom at the centre of the token.
        atom_token: int64 [A], token of each atom, ascending.
    """

    entity: torch.Tensor
    copy: torch.Tensor
    index: torch.Tensor
    component: torch.Tensor
    is_ligand: torch.Tensor
    centre: torch.Tensor
    atom_token: torch.Tensor

    def tokens(self, molecule: Molecule) -> torch.Tensor:
        """Return the tokens of a molecule, int64 [n]."""
        return ((self.entity == molecule[0]) & (self.copy == molecule[1])).nonzero()[:, 0]

    def copies(self, entity: int, among: torch.Tensor | None = None) -> list[int]:
        """Return the copies of an entity, ascending; `among` is bool [N], tokens that count."""
        selected = self.entity == entity
        return self.copy[selected if among is None else selected & among].unique().tolist()


@dataclass(frozen=True)
class Experiment:
    """An experimental structure with all copies of the molecules of a crop.

    Args:
        molecules: its molecules.
        positions: [A', 3], Å.
        resolved: bool [A'], atoms with a known position.
    """

    molecules: Molecules
    positions: torch.Tensor
    resolved: torch.Tensor


@dataclass(frozen=True)
class Crop:
    """The molecules of a crop, whose structure is predicted.

    Args:
        molecules: its molecules.
        symmetries: equivalent orders of the atoms of a residue or ligand, int64 [P, n]: for each of its n
            atoms in the crop, the index among all its atoms in the experiment; by entity, copy and component.
            Those without an entry are whole and have one order.
    """

    molecules: Molecules
    symmetries: Mapping[tuple[int, int, int], torch.Tensor]


@torch.no_grad()
def best_targets(crop: Crop, experiment: Experiment, predicted: torch.Tensor) -> AtomTargets:
    """Return the experimental structure of a crop in the order that fits a predicted one [A, 3], Å, best."""
    index = matching_atoms(crop, experiment, predicted)
    positions, resolved = experiment.positions[index], experiment.resolved[index]
    return AtomTargets(positions.to(predicted), resolved.to(predicted))


def matching_atoms(crop: Crop, experiment: Experiment, predicted: torch.Tensor) -> torch.Tensor:
    """Return the experimental atom of each predicted atom [A, 3], int64 [A]; see `best_targets`."""
    centres = predicted[crop.molecules.centre]
    matched = _match_molecules(crop.molecules, experiment, centres)
    tokens = torch.zeros_like(crop.molecules.entity)
    for molecule, partner in matched.items():
        members = crop.molecules.tokens(molecule)
        tokens[members] = _segment(crop.molecules, members, experiment.molecules, partner)
    true, resolved = _centres(experiment)
    moved = _apply(alignment(centres, true[tokens], resolved[tokens].to(centres)), predicted)
    return _match_atoms(crop, experiment, moved, tokens)


def _centres(experiment: Experiment) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the centres of tokens [N', 3], and the tokens whose centre is resolved, bool [N']."""
    atoms = experiment.molecules.centre
    return experiment.positions[atoms], experiment.resolved[atoms]


def _apply(rigid: Rigid, points: torch.Tensor) -> torch.Tensor:
    """Move points [P, 3] by a transformation."""
    return points @ rigid.rotation.transpose(-1, -2) + rigid.translation


def _segment(crop: Molecules, tokens: torch.Tensor, experiment: Molecules, partner: Molecule) -> torch.Tensor:
    """Return the tokens of an experimental molecule with the indices of a crop's tokens, int64 [n]."""
    members = experiment.tokens(partner)
    return members[torch.searchsorted(experiment.index[members], crop.index[tokens])]


def _match_molecules(
    crop: Molecules, experiment: Experiment, centres: torch.Tensor
) -> dict[Molecule, Molecule]:
    """Return the experimental molecule of each molecule of the crop, whose tokens' centres are [N, 3]."""
    true, resolved = _centres(experiment)
    anchor = _anchor(crop, experiment.molecules, resolved)
    best: tuple[float, dict[Molecule, Molecule]] | None = None
    for copy in crop.copies(anchor[0]):
        members = crop.tokens((anchor[0], copy))
        segment = _segment(crop, members, experiment.molecules, anchor)
        rigid = alignment(true[segment], centres[members], resolved[segment].to(centres))
        error, matched = _assign(crop, experiment.molecules, centres, _apply(rigid, true), resolved)
        if best is None or error < best[0]:
            best = error, matched
    assert best is not None
    return best[1]


def _anchor(crop: Molecules, experiment: Molecules, resolved: torch.Tensor) -> Molecule:
    """Return the experimental molecule whose place in the crop is the least ambiguous.

    Polymers come before ligands, then kinds with few resolved copies, then those with many resolved tokens.
    """
    present = crop.entity.unique().tolist()
    ligands = [entity for entity in present if bool(experiment.is_ligand[experiment.entity == entity].all())]
    polymers = [entity for entity in present if entity not in ligands]
    polymer = _least_ambiguous(polymers, experiment, resolved)
    ligand = _least_ambiguous(ligands, experiment, resolved)
    if polymer is None and ligand is None:  # nothing is resolved
        return present[0], experiment.copies(present[0])[0]
    if ligand is None or (polymer and (polymer[0] >= FEW_CENTRES or ligand[0] <= FEW_CENTRES)):
        assert polymer is not None
        return polymer[1]
    return ligand[1]


def _least_ambiguous(
    entities: list[int], experiment: Molecules, resolved: torch.Tensor
) -> tuple[int, Molecule] | None:
    """Return the number of resolved tokens and the molecule of the best anchor, or None without any."""
    by_copies: dict[int, list[tuple[int, Molecule]]] = {}
    for entity in entities:
        copies = experiment.copies(entity, resolved)
        if copies:
            counts = [int(resolved[experiment.tokens((entity, copy))].sum()) for copy in copies]
            most = max(counts)
            by_copies.setdefault(len(copies), []).append((most, (entity, copies[counts.index(most)])))
    best = [max(candidates, key=lambda x: x[0]) for _, candidates in sorted(by_copies.items())]
    return next((candidate for candidate in best if candidate[0] > FEW_CENTRES), best[0] if best else None)


def _assign(
    crop: Molecules, experiment: Molecules, centres: torch.Tensor, true: torch.Tensor, resolved: torch.Tensor
) -> tuple[float, dict[Molecule, Molecule]]:
    """Let each molecule of the crop take the closest copy that no other has taken.

    Centres of tokens are those predicted for the crop [N, 3], and experimental ones [N', 3], aligned, of
    which some are resolved, bool [N'].

    Returns:
        error: mean squared distance of the centroids, Å²; molecules without a resolved token count with one
            more than the largest.
        matched: the experimental molecule of each molecule.
    """
    matched: dict[Molecule, Molecule] = {}
    distances: list[float | None] = []
    for entity in crop.entity.unique().tolist():
        free = experiment.copies(entity)
        segments = {}
        for copy in crop.copies(entity):
            members = crop.tokens((entity, copy))
            segments[copy] = [
                (other, members, _segment(crop, members, experiment, (entity, other))) for other in free
            ]
        # those with many resolved tokens choose first
        order = sorted(segments, key=lambda copy: -sum(int(resolved[s[2]].sum()) for s in segments[copy]))
        for copy in order:
            options = [
                (_centroid_distance(centres[members], true[segment], resolved[segment]), other)
                for other, members, segment in segments[copy]
                if other in free
            ]
            known = [option for option in options if option[0] is not None]
            distance, other = min(known, key=lambda x: x[0] or 0.0) if known else options[0]
            free.remove(other)
            distances.append(distance)
            matched[entity, copy] = entity, other
    found = [distance for distance in distances if distance is not None]
    largest = max(found, default=0.0) + 1
    return sum(largest if x is None else x for x in distances) / len(distances), matched


def _centroid_distance(first: torch.Tensor, second: torch.Tensor, mask: torch.Tensor) -> float | None:
    """Return the squared distance of the centroids of masked points [n, 3], or None without any."""
    if not bool(mask.any()):
        return None
    return float((first[mask].mean(dim=0) - second[mask].mean(dim=0)).square().sum())


def _match_atoms(
    crop: Crop, experiment: Experiment, moved: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Return the experimental atom of each atom, int64 [A].

    The predicted structure [A, 3], Å, is aligned to the experimental one; `tokens` int64 [N] are the
    experimental tokens of its own.
    """
    ours, theirs = crop.molecules, experiment.molecules
    first = torch.searchsorted(theirs.atom_token, tokens)  # of each token's atoms
    own_first = torch.searchsorted(ours.atom_token, torch.arange(len(tokens), device=tokens.device))
    rank = torch.arange(len(moved), device=tokens.device) - own_first[ours.atom_token]
    index = first[ours.atom_token] + rank
    found: dict[torch.Size, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    our_atoms, their_atoms = _component_atoms(ours), _component_atoms(theirs)
    matched_copies = theirs.copy[tokens].tolist()
    for (entity, copy, component), orders in crop.symmetries.items():
        members, token = our_atoms[entity, copy, component]
        whole, _ = their_atoms[entity, matched_copies[token], component]
        found.setdefault(orders.shape, []).append((members, whole[orders]))
    for group in found.values():
        atoms, options = (torch.stack(x) for x in zip(*group, strict=True))  # [M, n] and [M, P, n]
        resolved = experiment.resolved[options]
        squared = (moved[atoms][:, None] - experiment.positions[options]).square().sum(dim=-1) * resolved
        error = squared.sum(dim=-1) / resolved.sum(dim=-1)
        best = error.nan_to_num(nan=torch.inf).argmin(dim=-1)  # [M]
        index[atoms] = options[torch.arange(len(best), device=best.device), best]
    return index


def _component_atoms(molecules: Molecules) -> dict[tuple[int, int, int], tuple[torch.Tensor, int]]:
    """Return the atoms of each entity, copy and component, int64 [n] ascending, and its first token."""
    tokens: dict[tuple[int, int, int], list[int]] = {}
    columns = (x.tolist() for x in (molecules.entity, molecules.copy, molecules.component))
    for token, key in enumerate(zip(*columns, strict=True)):
        tokens.setdefault(key, []).append(token)
    count = torch.bincount(molecules.atom_token, minlength=len(molecules.entity))
    ends = count.cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    every = torch.arange(len(molecules.atom_token), device=molecules.atom_token.device)
    return {
        key: (
            every[starts[x[0]] : ends[x[0]]]
            if len(x) == 1
            else torch.cat([every[starts[token] : ends[token]] for token in x]),
            x[0],
        )
        for key, x in tokens.items()
    }
