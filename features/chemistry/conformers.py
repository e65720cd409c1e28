"""Reference conformers by RDKit (ETKDG version 3), with the dictionary's coordinates as fallback."""

import contextlib
import ctypes
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from rdkit import Chem, rdBase
from rdkit.Chem import rdDistGeom

from features.chemistry.components import Component
from features.chemistry.molecules import InvalidMolecule, build_molecule, without_hydrogens
from msa.base.cpu_kernels.threads import run_in_threads
from msa.base.hardware import available_cores

Source = Literal["rdkit", "ideal", "model", "none"]

# tried in this order: macrocycles and porphyrins embed with the second or the third only
_ATTEMPTS: tuple[tuple[str, ...], ...] = ((), ("useSmallRingTorsions",), ("useRandomCoords",))
_MAX_SEED = 10**9
# messages about molecules that get the dictionary's coordinates; RDKit can block them in one thread only
rdBase.LogToPythonLogger()
logging.getLogger("rdkit").disabled = True
# seconds for an attempt, after which the next is made
_TIME_LIMIT = 120
# conformers made at once, the threads that make them, and those that are kept
_AHEAD, _MOST_THREADS, _KEPT = 128, 16, 2**15
# at least the size of `struct sigaction`
_SIGACTION_BYTES = 256
_interrupt_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Conformer:
    """Coordinates of a component.

    Attributes:
        positions: float32 [A, 3] in Å; zeros where there are none.
        mask: bool [A], whether an atom has coordinates.
        charges: int [A], formal charges after RDKit's clean-up.
    """

    positions: np.ndarray = field(repr=False)
    mask: np.ndarray = field(repr=False)
    charges: np.ndarray = field(repr=False)
    source: Source


class _Attempt(NamedTuple):
    """All that the result of an attempt depends on; `chiral` keeps the dictionary's handedness."""

    component: Component
    chiral: bool
    options: tuple[str, ...]
    seed: int


class ConformerGenerator:
    """Conformers from one stream of random numbers: every call draws another one.

    The same seed gives the same conformers in the same order, with the same version of RDKit. Those of the
    last jobs are kept, so that the jobs of a screen share those of their protein.

    Args:
        chiral_residues: give the residues of polymers the handedness of the dictionary. OpenFold3 0.5.0 does
            so for ligands only, and draws the handedness of residues at random; False reproduces that.
    """

    def __init__(self, seed: int, chiral_residues: bool = True) -> None:
        self._random = random.Random(seed)
        self._chiral_residues = chiral_residues

    def generate_all(self, components: Sequence[tuple[Component, bool]]) -> list[Conformer]:
        """Return a conformer of each component; from the dictionary, or an empty one, if RDKit finds none."""
        requests = [(x, self._chiral_residues or not in_polymer) for x, in_polymer in components]
        result: list[Conformer] = []
        while len(result) < len(requests):
            coming = requests[len(result) : len(result) + _AHEAD]
            self._embed_ahead(coming)
            for request in coming:
                conformer, attempts = self._next(*request)
                result.append(conformer)
                if attempts > 1:  # the numbers ahead were drawn as if all first attempts succeeded
                    break
        return result

    def _next(self, component: Component, chiral: bool) -> tuple[Conformer, int]:
        """Return the next conformer of the stream, and the number of attempts."""
        if _molecule(component, chiral) is None:
            return stored_conformer(component), 0
        for count, options in enumerate(_ATTEMPTS, 1):
            attempt = self._draw(self._random, component, chiral, options)
            _embed_all([attempt])
            found = _embed(attempt)
            if found is not None:
                positions, charges = found
                return Conformer(positions, np.ones(len(component), bool), charges, "rdkit"), count
        return stored_conformer(component), len(_ATTEMPTS)

    def _embed_ahead(self, requests: Sequence[tuple[Component, bool]]) -> None:
        """Make the first attempts of the next conformers on several threads."""
        stream = random.Random()
        stream.setstate(self._random.getstate())
        _embed_all([self._draw(stream, *x, ()) for x in requests if _molecule(*x) is not None])

    def _draw(
        self, stream: random.Random, component: Component, chiral: bool, options: tuple[str, ...]
    ) -> _Attempt:
        return _Attempt(component, chiral, options, stream.randint(0, _MAX_SEED))


@lru_cache(maxsize=512)
def _molecule(component: Component, chiral: bool) -> Chem.Mol | None:
    """Return the molecule of a component with hydrogens; None if it is none."""
    try:
        return Chem.AddHs(build_molecule(component, chiral))
    except InvalidMolecule:
        return None


def _embed_all(attempts: Sequence[_Attempt]) -> None:
    """Make attempts on several threads; RDKit leaves the interpreter to others meanwhile."""
    with interrupts_kept():
        threads = min(available_cores(), _MOST_THREADS)
        run_in_threads(lambda i, _: _embed(attempts[i]), [(i, i + 1) for i in range(len(attempts))], threads)


@lru_cache(maxsize=_KEPT)
def _embed(attempt: _Attempt) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the positions and the charges of an attempt; None if it fails."""
    parameters: Any = rdDistGeom.ETKDGv3()
    parameters.clearConfs = False
    parameters.randomSeed = attempt.seed
    parameters.timeout = _TIME_LIMIT
    for option in attempt.options:
        setattr(parameters, option, True)
    prepared = _molecule(attempt.component, attempt.chiral)
    if prepared is None:
        return None
    molecule = Chem.Mol(prepared)
    try:
        found = rdDistGeom.EmbedMolecule(molecule, parameters) >= 0
    except (ValueError, RuntimeError):  # such as an atom type without parameters
        found = False
    if not found:
        return None
    embedded = without_hydrogens(molecule)
    charges = np.array([atom.GetFormalCharge() for atom in embedded.GetAtoms()], np.int64)
    return embedded.GetConformer().GetPositions().astype(np.float32), charges


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


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Restore this process's handler of SIGINT after the block, which one thread at a time enters.

    RDKit raises KeyboardInterrupt in the thread that calls it. If that is not the main thread, SIGINT is sent
    again, so that the main thread is interrupted too.
    """
    libc, handler = ctypes.CDLL(None), ctypes.create_string_buffer(_SIGACTION_BYTES)
    with _interrupt_lock:
        libc.sigaction(signal.SIGINT, None, handler)
        try:
            yield
        except KeyboardInterrupt:
            libc.sigaction(signal.SIGINT, handler, None)
            if threading.current_thread() is not threading.main_thread():
                os.kill(os.getpid(), signal.SIGINT)
            raise
        finally:
            libc.sigaction(signal.SIGINT, handler, None)
