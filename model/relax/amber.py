"""Relaxation with OpenMM in the Amber ff99SB force field, with the settings of AlphaFold2's code.

Heavy atoms are restrained to their positions. While the result has violations, the restraints of the
violating residues are removed and the relaxation is repeated, with at most three rounds in all (Jumper et al.
2021, Supplementary Information 1.8.6).
"""

import contextlib
import io
import math
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import gemmi
import numpy as np
import openmm
import pdbfixer
from openmm import app, unit

from model.errors import RelaxError
from model.relax.geometry import BackboneGeometry, backbone_geometry
from model.relax.segments import Segment, make_structure, read_segments, residues_of, split_by_segment
from model.relax.violations import StructureViolations, find_violations

_KCAL = unit.kilocalories_per_mole
_GPU_PLATFORMS = ("CUDA", "HIP", "OpenCL")
# upper limit of the minimizer's energy evaluations per iteration, to estimate the longest time of a round
_MAX_EVALUATIONS_PER_ITERATION = 10
# residues in OpenMM's messages, by their index from 0
_OPENMM_RESIDUE = re.compile(
    r"residue (\d+) \(\w+\)|chainid <.*?> resid <.*?> resname <.*?> \(residue index within topology (\d+)\)"
)


@dataclass(frozen=True)
class RelaxSettings:
    """Settings of a relaxation.

    Args:
        stiffness: spring constant of the restraints, kcal/mol/Å².
        max_iterations: iterations of the minimizer in each round.
        tolerance: root mean square force at which the minimizer stops, kJ/mol/nm.
        max_rounds: rounds of minimization and release of violating residues.
        max_seconds: time after which a relaxation fails.
        device: see `select_platform`.
        threads: CPU threads; with one, the result on a CPU is the same in every bit.
    """

    stiffness: float = 10.0
    max_iterations: int = 2000
    tolerance: float = 2.39
    max_rounds: int = 3
    max_seconds: float = 1800.0
    device: Literal["auto", "cpu", "gpu"] = "auto"
    threads: int = 1


@dataclass(frozen=True)
class RelaxResult:
    """A relaxed structure.

    Args:
        structure: the relaxed structure with hydrogens; B-factors are those of the input.
        energy_before, energy_after: kcal/mol, restraints included, after hydrogens were added.
        rmsd: root mean square displacement of heavy atoms, Å.
        before, after: violations of the input and of the result.
        geometry_before, geometry_after: their backbones.
        rounds: number of rounds.
        seconds: wall time.
        platform: OpenMM's platform.
        changes: descriptions of all changes to the structure except added hydrogens and moved atoms.
    """

    structure: gemmi.Structure
    energy_before: float
    energy_after: float
    rmsd: float
    before: StructureViolations
    after: StructureViolations
    geometry_before: BackboneGeometry
    geometry_after: BackboneGeometry
    rounds: int
    seconds: float
    platform: str
    changes: tuple[str, ...]

    @property
    def worse(self) -> list[str]:
        """Counts that relaxation made worse, in words."""
        worse = [
            f"{name} {self.before.counts()[name]} to {count}"
            for name, count in self.after.counts().items()
            if count > self.before.counts()[name]
        ]
        return worse + self.geometry_after.worse_than(self.geometry_before)

    def pdb(self) -> str:
        """Return the structure in PDB format, with energies in remarks."""
        structure = self.structure.clone()
        structure.raw_remarks = [
            *structure.raw_remarks,
            "REMARK   6 Relaxed with OpenMM in Amber ff99SB, from "
            f"{self.energy_before:.0f} to {self.energy_after:.0f} kcal/mol",
        ]
        # as in `model.output.pdb`
        options = gemmi.PdbWriteOptions(cryst1_record=False, seqres_records=len(structure[0]) > 1)
        return str(structure.make_pdb_string(options))

    def summary(self) -> dict[str, Any]:
        """Return energies, violations, backbones, displacement, cost and changes for JSON."""
        return {
            "energy_before": round(self.energy_before, 1),
            "energy_after": round(self.energy_after, 1),
            "rmsd": round(self.rmsd, 3),
            "violations_before": self.before.counts(),
            "violations_after": self.after.counts(),
            "geometry_before": self.geometry_before.counts(),
            "geometry_after": self.geometry_after.counts(),
            "worse": self.worse,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 2),
            "platform": self.platform,
            "changes": list(self.changes),
        }

    def describe(self) -> str:
        """Return one line with energies, violations, backbones, displacement and cost."""
        return (
            f"energy {self.energy_before:.0f} to {self.energy_after:.0f} kcal/mol; "
            f"violations: {self.before.describe()}, now {self.after.describe()}; "
            f"backbone: {self.geometry_before.describe()}, now {self.geometry_after.describe()}; "
            f"RMSD {self.rmsd:.2f} Å, {self.rounds} rounds, {self.seconds:.1f} s ({self.platform})"
        )


def relax(structure: gemmi.Structure, settings: RelaxSettings | None = None) -> RelaxResult:
    """Relax the first model of a structure.

    Ligands, water and residues without a complete backbone, or other than the twenty, are left out, and
    missing atoms are added.

    Raises:
        RelaxError: there is no protein, the force field does not know a residue, the energy is not finite or
            does not fall, or the time is up.
    """
    settings = settings or RelaxSettings()
    start = time.perf_counter()
    segments, changes = read_segments(structure)
    chains = [segment.residues for segment in segments]
    before, geometry_before = find_violations(chains), backbone_geometry(chains)
    fixer, repairs = _add_missing_atoms(segments, _cpu_platform(settings.threads))
    platform = select_platform(settings.device)
    system = _create_system(fixer.topology, segments)
    positions = np.array(fixer.positions.value_in_unit(unit.angstrom))
    is_heavy = np.array([atom.element.symbol != "H" for atom in fixer.topology.atoms()])
    residue_of = np.array([atom.residue.index for atom in fixer.topology.atoms()])
    deadline = start + settings.max_seconds
    released: frozenset[int] = frozenset()
    energies: list[float] = []
    relaxed_positions = positions
    for _ in range(settings.max_rounds):
        restrained = is_heavy & ~np.isin(residue_of, list(released))
        energy_before, energy_after, relaxed_positions = _minimize(
            fixer.topology, system, relaxed_positions, restrained, settings, platform, deadline
        )
        energies += [energy_before, energy_after]
        chains = split_by_segment(residues_of(fixer.topology, relaxed_positions), segments)
        after = find_violations(chains)
        if after.residues <= released:
            break
        released |= after.residues
    if not energies[-1] <= energies[0]:
        raise RelaxError(f"the energy rose from {energies[0]:.0f} to {energies[-1]:.0f} kcal/mol")
    return RelaxResult(
        structure=make_structure(structure, residues_of(fixer.topology, relaxed_positions), segments),
        energy_before=energies[0],
        energy_after=energies[-1],
        rmsd=float(np.sqrt(np.mean(np.sum((relaxed_positions - positions)[is_heavy] ** 2, axis=1)))),
        before=before,
        after=after,
        geometry_before=geometry_before,
        geometry_after=backbone_geometry(chains),
        rounds=len(energies) // 2,
        seconds=time.perf_counter() - start,
        platform=platform.getName(),
        changes=(*changes, *repairs),
    )


def _add_missing_atoms(
    segments: list[Segment], platform: openmm.Platform
) -> tuple[pdbfixer.PDBFixer, list[str]]:
    """Add missing atoms and hydrogens, and return descriptions of the changes."""
    model = gemmi.Model(1)
    for number, segment in enumerate(segments):
        chain = gemmi.Chain(str(number))
        for index, residue in enumerate(segment.residues, 1):
            copy = residue.clone()
            copy.seqid = gemmi.SeqId(index, " ")
            copy.het_flag = "A"
            copy.entity_type, copy.subchain = gemmi.EntityType.Polymer, ""
            chain.add_residue(copy)
        model.add_chain(chain)
    structure = gemmi.Structure()
    structure.add_model(model)
    structure.setup_entities()
    # mmCIF, because names of chains in PDB files have only one letter
    text = structure.make_mmcif_document().as_string()
    try:
        fixer = pdbfixer.PDBFixer(pdbxfile=io.StringIO(text), platform=platform)
        fixer.missingResidues = {}
        fixer.findMissingAtoms()
        missing = sum(map(len, fixer.missingAtoms.values()))
        fixer.addMissingAtoms(seed=1)  # 0 would be another seed in every run
        with _seeded_random():
            fixer.addMissingHydrogens(7.0)
    except Exception as error:  # the library raises plain Exception and KeyError for odd residues
        raise RelaxError(f"missing atoms cannot be added: {_one_line(error, segments)}") from error
    changes = [f"added {missing} missing heavy atoms"] if missing else []
    return fixer, changes


def _cpu_platform(threads: int) -> openmm.Platform:
    """Return OpenMM's CPU platform, set to a number of threads; one gives the same results in every run."""
    platform = openmm.Platform.getPlatformByName("CPU")
    platform.setPropertyDefaultValue("Threads", str(threads))
    platform.setPropertyDefaultValue("DeterministicForces", "true")
    return platform


@contextlib.contextmanager
def _seeded_random() -> Iterator[None]:
    """Make Python's random numbers, from which OpenMM places hydrogens, the same for every structure."""
    state = random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(state)


@cache
def select_platform(device: Literal["auto", "cpu", "gpu"]) -> openmm.Platform:
    """Return OpenMM's platform for "cpu", "gpu", or "auto", a GPU if OpenMM can use one, else the CPU.

    Raises:
        RelaxError: a GPU was requested, and OpenMM can use none.
    """
    names = [openmm.Platform.getPlatform(k).getName() for k in range(openmm.Platform.getNumPlatforms())]
    reasons = [f"its platforms are {', '.join(names)}"]
    for name in _GPU_PLATFORMS if device != "cpu" else ():
        if name in names:
            platform = openmm.Platform.getPlatformByName(name)
            if (reason := _platform_error(platform)) is None:
                return platform
            reasons.append(f"{name}: {reason}")
    if device == "gpu":
        raise RelaxError(f"OpenMM can use no GPU: {'; '.join(reasons)}")
    return openmm.Platform.getPlatformByName("CPU")


def _platform_error(platform: openmm.Platform) -> str | None:
    """Return the error of a platform that cannot compute; None if it can."""
    # OpenMM lists a platform if its libraries load, even if there is no device for it
    system = openmm.System()
    system.addParticle(1.0)
    try:
        openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
    except openmm.OpenMMException as error:
        return _one_line(error)
    return None


def _create_system(topology: app.Topology, segments: list[Segment]) -> openmm.System:
    try:
        return app.ForceField("amber99sb.xml").createSystem(topology, constraints=app.HBonds)
    except ValueError as error:
        raise RelaxError(
            f"the force field does not know the structure: {_one_line(error, segments)}"
        ) from error


def _one_line(error: Exception, segments: Sequence[Segment] = ()) -> str:
    """Return the error's text, with the chain and number in the file of a residue that OpenMM names."""
    text = " ".join(str(error).split()) or type(error).__name__
    residues = [f"{each.name} {part.chain}{each.seqid}" for part in segments for each in part.residues]

    def in_file(match: re.Match[str]) -> str:
        index = int(match[1] or match[2])
        return residues[index] if index < len(residues) else match[0]

    text = _OPENMM_RESIDUE.sub(in_file, text)
    # OpenMM's messages end with a link to its questions and answers
    text = text.partition(" For more information")[0].rstrip(".")
    return f"{text}: atoms may be at the same place" if "NaN" in text else text


class _Deadline(openmm.MinimizationReporter):
    """A reporter that stops the minimizer when the time is up."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def report(self, iteration: int, x: Any, grad: Any, args: Any) -> bool:
        """Return True to stop the minimizer."""
        return time.perf_counter() > self._deadline


def _minimize(
    topology: app.Topology,
    system: openmm.System,
    positions: np.ndarray,
    restrained: np.ndarray,
    settings: RelaxSettings,
    platform: openmm.Platform,
    deadline: float,
) -> tuple[float, float, np.ndarray]:
    """Return the energy (kcal/mol) before and after, and the new positions, float64 [atoms, 3], Å."""
    system = openmm.XmlSerializer.clone(system)
    force = openmm.CustomExternalForce("0.5 * k * ((x-x0)^2 + (y-y0)^2 + (z-z0)^2)")
    force.addGlobalParameter("k", settings.stiffness * _KCAL / unit.angstrom**2)
    for name in ("x0", "y0", "z0"):
        force.addPerParticleParameter(name)
    for index in np.flatnonzero(restrained).tolist():
        force.addParticle(index, positions[index] / 10)
    system.addForce(force)
    integrator = openmm.LangevinIntegrator(0, 0.01, 0.0)
    try:
        simulation = app.Simulation(topology, system, integrator, platform)
        simulation.context.setPositions(positions / 10)
        start = time.perf_counter()
        before = _energy(simulation)
        evaluation_seconds = time.perf_counter() - start
        max_seconds = _MAX_EVALUATIONS_PER_ITERATION * settings.max_iterations * evaluation_seconds
        tolerance = settings.tolerance * unit.kilojoules_per_mole / unit.nanometer
        # a reporter is slow: it gets copies of all positions and gradients in every iteration
        reporter = _Deadline(deadline) if start + max_seconds > deadline else None
        simulation.minimizeEnergy(tolerance, settings.max_iterations, reporter)
        after = _energy(simulation)
        state = simulation.context.getState(getPositions=True)
    except openmm.OpenMMException as error:
        raise RelaxError(f"OpenMM: {_one_line(error)}") from error
    if time.perf_counter() > deadline:
        raise RelaxError(f"not finished after {settings.max_seconds:g} s")
    if not math.isfinite(after):
        raise RelaxError("the energy is not finite: atoms may be at the same place")
    return before, after, np.array(state.getPositions(asNumpy=True).value_in_unit(unit.angstrom))


def _energy(simulation: app.Simulation) -> float:
    state = simulation.context.getState(getEnergy=True)
    return float(state.getPotentialEnergy().value_in_unit(_KCAL))
