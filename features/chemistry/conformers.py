"""Reference conformers by RDKit (ETKDG version 3), with the dictionary's coordinates as fallback."""

import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import rdDistGeom

from features.chemistry.components import Component
from features.chemistry.errors import InvalidMolecule
from features.chemistry.interrupts import interrupts_kept
from features.chemistry.molecules import build_molecule, without_hydrogens

Source = Literal["rdkit", "ideal", "model", "none"]

# tried in this order: macrocycles and porphyrins embed with the second or the third only
_ATTEMPTS: tuple[tuple[str, ...], ...] = ((), ("useSmallRingTorsions",), ("useRandomCoords",))
_MAX_SEED = 10**9


@dataclass(frozen=True, eq=False)
class Conformer:
    """Coordinates of a component.

    Attributes:
        positions: float32 [A, 3] in Å; zeros where there are none.
        mask: bool [A], whether an atom has coordinates.
        charges: int [A], formal charges after RDKit's clean-up.
        source: origin of the coordinates.
    """

    positions: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)
    charges: np.ndarray = field(repr=False)
    source: Source


class ConformerGenerator:
    """Conformers from one stream of random numbers: every call draws another one.

    The same seed gives the same conformers in the same order, with the same version of RDKit.

    Args:
        seed: seed of the stream.
        chiral_residues: give the residues of polymers the handedness of the dictionary. OpenFold3 0.5.0 does
            so for ligands only, and draws the handedness of residues at random; False reproduces that.
        time_limit: seconds for an attempt, after which the next is made.
    """

    def __init__(self, seed: int, chiral_residues: bool = True, time_limit: int = 120) -> None:
        self._random = random.Random(seed)
        self._chiral_residues = chiral_residues
        self._time_limit = time_limit
        self._molecules: OrderedDict[tuple[int, bool], tuple[Component, Chem.Mol]] = OrderedDict()

    def generate(self, component: Component, in_polymer: bool = False) -> Conformer:
        """Return a conformer; one from the dictionary, or an empty one, if RDKit finds none.

        Args:
            component: the component.
            in_polymer: whether it is a residue of a polymer.
        """
        try:
            molecule = self._prepare(component, self._chiral_residues or not in_polymer)
        except InvalidMolecule:
            return stored_conformer(component)
        for options in _ATTEMPTS:
            embedded = self._embed(molecule, options)
            if embedded is not None:
                charges = np.array([atom.GetFormalCharge() for atom in embedded.GetAtoms()], np.int64)
                positions = embedded.GetConformer().GetPositions().astype(np.float32)
                return Conformer(positions, np.ones(len(component), bool), charges, "rdkit")
        return stored_conformer(component)

    def _prepare(self, component: Component, chiral: bool) -> Chem.Mol:
        """Return the component's molecule with hydrogens; molecules are kept for further calls."""
        key = (id(component), chiral)
        if key not in self._molecules:
            molecule = Chem.AddHs(build_molecule(component, chiral))
            # the component is kept too, or another could get its id
            self._molecules[key] = (component, molecule)
            if len(self._molecules) > 512:
                self._molecules.popitem(last=False)
        return self._molecules[key][1]

    def _embed(self, molecule: Chem.Mol, options: tuple[str, ...]) -> Chem.Mol | None:
        """Return the molecule with one conformer and without hydrogens; None if RDKit finds none."""
        parameters: Any = rdDistGeom.ETKDGv3()
        parameters.clearConfs = False
        parameters.randomSeed = self._random.randint(0, _MAX_SEED)
        parameters.timeout = self._time_limit
        for option in options:
            setattr(parameters, option, True)
        molecule = Chem.Mol(molecule)
        with rdBase.BlockLogs(), interrupts_kept():
            try:
                found = rdDistGeom.EmbedMolecule(molecule, parameters) >= 0
            except (ValueError, RuntimeError):  # such as an atom type without parameters
                found = False
        return without_hydrogens(molecule) if found else None


def stored_conformer(component: Component) -> Conformer:
    """Return the idealised coordinates of the dictionary, else those from a structure, else an empty one."""
    candidates: tuple[tuple[Source, np.ndarray], ...] = (
        ("ideal", component.ideal),
        ("model", component.model),
    )
    for source, coordinates in candidates:
        mask = ~np.isnan(coordinates).any(1)
        if mask.all() or (mask.any() and source == "model"):
            positions = np.where(mask[:, None], coordinates, 0).astype(np.float32)
            return Conformer(positions, mask, component.charges, source)
    absent = np.zeros(len(component), bool)
    return Conformer(np.zeros((len(component), 3), np.float32), absent, component.charges, "none")
