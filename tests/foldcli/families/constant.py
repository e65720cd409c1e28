"""A family of its own kind for tests: targets that no other family reads, and a constant as prediction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from features.templates.library.settings import TemplateSettings
from foldcli.families.base import Family
from foldcli.families.protocols import AlignmentIdentity, DeviceMemory, FeatureServices, NetworkJob
from foldcli.families.reporting import Estimate, PlanHeading
from foldcli.families.settings import Job, JobSettings, NetworkOptions
from foldcli.inputs.complexes import chain_query
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import ModelKind
from foldcli.outputs.model_files import (
    RESIDUE_MODELS,
    ModelOrigin,
    ModelResult,
    PredictedModel,
    WriteFile,
)
from foldcli.outputs.target import TargetRun
from model.prediction import Prediction
from msa.alignments.files import parse_alignment
from msa.base.residues import RESTYPES
from msa.io.fasta import FastaRecord
from tests.predictions import protein_prediction

Sample: TypeAlias = dict[str, np.ndarray]
SAMPLES = 3
# starts of jobs, as "target, seed"
started: list[str] = []


@dataclass(frozen=True)
class Assembly:
    """A target that only this family reads: chains, and a number of atoms outside the chains."""

    name: str
    chains: tuple[FastaRecord, ...]
    atoms: int
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConstantSource:
    """The only model of the family, which gives several samples for each seed."""

    family: str = "constant"
    number: int = 1
    label: str = "constant"
    config_name: str = "constant 1"
    file: Path | None = None
    is_untrained: bool = False

    def tags(self, seed: int) -> tuple[str, ...]:
        """Return one tag for each sample."""
        return tuple(f"constant_seed_{seed:03d}_sample_{index}" for index in range(SAMPLES))


@dataclass(frozen=True, kw_only=True)
class ConstantSettings(JobSettings):
    """Settings with a number of steps.

    Args:
        steps: steps of the diffusion.
    """

    steps: int = 20


class ConstantWriter:
    """The writer of constant models: mmCIF and scores, no PDB."""

    def result(self, model: PredictedModel) -> ModelResult:
        """Return the values of a model."""
        return model.result(("cif", "scores"))

    def files(self, model: PredictedModel) -> dict[ModelKind, WriteFile]:
        """Return the functions that write the files."""
        return RESIDUE_MODELS.files(model)


class ConstantNetwork:
    """A network that predicts the same for each target, and fails for some."""

    def start(
        self, work: NetworkJob[Sample, ConstantSettings], memory: DeviceMemory
    ) -> Callable[[], tuple[Prediction, ...]]:
        """Start a job."""
        started.append(f"{work.name}, {work.job.seed}")
        work.progress(1, 1)
        return lambda: tuple(_constant(work.sample, index) for index in range(SAMPLES))

    def warm_up(self, residues: int) -> None:
        """Do nothing."""


class Constant(Family[Assembly, ConstantSource, list[int], Sample, ConstantSettings]):
    """The family."""

    name = "constant"
    size_unit = "tokens"
    own_options = frozenset({"num_recycles"})
    writer = ConstantWriter()

    def claims(self, params: str | None) -> bool:
        """Return True for "constant"."""
        return params == "constant"

    def refusal(self, option: str) -> str:
        """Return the reason for --num-relax."""
        return "--params constant has nothing to relax."

    def settings(self, options: NetworkOptions) -> ConstantSettings:
        """Return the settings with the steps of --num-recycle."""
        given = options.predict
        return ConstantSettings(
            num_seeds=given.num_seeds,
            random_seed=given.random_seed,
            replaces_seeds=given.replaces_seeds,
            stop_at_score=given.stop_at_score,
            steps=10 if options.num_recycles is None else options.num_recycles,
        )

    def sources(self, options: NetworkOptions, families: Sequence[str]) -> list[ConstantSource]:
        """Return the only model."""
        return [ConstantSource()]

    def content(self, source: ConstantSource) -> str:
        """Return a constant."""
        return "no parameters"

    def read_queries(self, sources: QuerySources, failures: Failures) -> list[tuple[str, Assembly]]:
        """Read files with a name, sequences joined by commas, and a number of atoms in each line."""
        lines = [line.split() for path in sources.inputs for line in Path(path).read_text().splitlines()]
        return [
            (name, Assembly(name, tuple(FastaRecord(name, each) for each in chains.split(",")), int(atoms)))
            for name, chains, atoms in lines
        ]

    def accepts(self, target: Any, source: ConstantSource) -> str | None:
        """Return a reason for targets without atoms."""
        return None if target.atoms else "no atoms"

    def size(self, target: Assembly) -> int:
        """Return the number of residues and atoms."""
        return sum(len(chain.sequence) for chain in target.chains) + target.atoms

    def chains_to_search(self, target: Assembly) -> tuple[FastaRecord, ...]:
        """Return the chains."""
        return target.chains

    def target_identity(self, target: Assembly, request: AlignmentIdentity | None) -> dict[str, Any]:
        """Return atoms, and the requests for the alignments of chains."""
        assert request is not None
        return {
            "atoms": target.atoms,
            "chains": [request.fingerprint(chain_query(chain)) for chain in target.chains],
        }

    def template_search(self, search: TemplateSettings, source: ConstantSource) -> None:
        """Return None: no templates are searched."""

    def uses_templates(self, source: ConstantSource) -> bool:
        """Return False."""
        return False

    def inputs(self, target: TargetRun, features: FeatureServices, with_templates: bool) -> list[int]:
        """Return the codes of all residues, after reading the chains' alignments."""
        with target.stage("features"):
            contents = [features.chain_store.read(chain_query(chain)) for chain in target.input.chains]
            rows = [len(parse_alignment(content).names) for content in contents]
        target.facts.residues, target.facts.alignment_rows = self.size(target.input), sum(rows)
        return [RESTYPES.index(letter) for chain in target.input.chains for letter in chain.sequence]

    def describe_size(self, facts: Facts) -> str:
        """Return the size in tokens."""
        return f"{facts.residues} tokens"

    def sample(self, inputs: list[int], job: Job, settings: ConstantSettings, draw: Any = None) -> Sample:
        """Return the codes of the residues as an array."""
        return {"aatype": np.array(inputs)}

    def load(
        self, source: ConstantSource, settings: ConstantSettings, device: str, arrays: Any
    ) -> ConstantNetwork:
        """Return the network."""
        return ConstantNetwork()

    def origin(
        self, name: str, job: Job, sample: Sample, model: Prediction, settings: ConstantSettings
    ) -> ModelOrigin:
        """Return the origin of a model."""
        return ModelOrigin(name, f"constant, {settings.steps} steps", False)

    def plan_heading(
        self, sources: Sequence[ConstantSource], settings: ConstantSettings, memory: DeviceMemory
    ) -> PlanHeading:
        """Return a heading about the steps."""
        return PlanHeading(f"network: constant, {settings.steps} steps", "network", {"steps": settings.steps})

    def estimate(self, size: int, *arguments: Any) -> Estimate:
        """Return an estimate."""
        return Estimate(size << 20, 1.0)


def _constant(sample: dict[str, np.ndarray], index: int) -> Prediction:
    """Return a structure on a line; a later sample has a lower pLDDT and a higher ranking score."""
    aatype = sample["aatype"]
    positions = np.zeros((len(aatype), 37, 3), np.float32)
    positions[:, :, 0] = 3.8 * np.arange(len(aatype))[:, None]
    mask = np.zeros((len(aatype), 37), np.float32)
    mask[:, 1] = 1
    plddt = np.full(len(aatype), 90.0 - 10 * index)
    return protein_prediction(aatype, positions, mask, plddt, ranking_score=0.5 + 0.1 * index)
