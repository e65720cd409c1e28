"""Identities of targets and predictions: everything that the results of a run depend on."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.complexes import Complex
from foldcli.inputs.targets import TargetInput, is_complex
from foldcli.params.parameters import TEMPLATE, ParameterSource, sources_of
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.fingerprints import fingerprint
from foldcli.pipeline.targets.settings import PredictSettings
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord


@dataclass(frozen=True)
class Job:
    """One prediction of a target: one model with one seed.

    Args:
        source: the model's parameters.
        seed: seed of the random features.
        parameters: hash of the parameters' content.
    """

    source: ParameterSource
    seed: int
    parameters: str

    @property
    def tag(self) -> str:
        """The part of file names that identifies the job, such as alphafold2_ptm_model_3_seed_000.

        Copies of templates, which have no seed, have the tag template_copy.
        """
        if self.source.copies_template:
            return self.source.label
        return f"{self.source.label}_seed_{self.seed:03d}"

    def fingerprint(self, target_fingerprint: str) -> str:
        """Return the fingerprint of the job's result for a target, given the target's fingerprint."""
        return fingerprint([target_fingerprint, self.source.config_name, self.parameters, self.tag])


@dataclass(frozen=True)
class TargetIdentities:
    """Identities and fingerprints of a run's targets.

    Args:
        sources: models in the order in which they run.
        parameters: label, network and content hash of each model's parameters; see `check_parameters`.
        settings: settings of the predictions.
        request: request for the queries' alignments; None if there are no queries, or no database yet.
        templates: everything that the templates depend on; None without templates.
    """

    sources: list[ParameterSource]
    parameters: list[dict[str, str]]
    settings: PredictSettings
    request: AlignmentRequest | None = None
    templates: dict[str, Any] | None = None

    def sources_of(self, target_input: TargetInput) -> list[ParameterSource]:
        """Return the models that predict a target.

        Raises:
            InputError: the target is a complex, and there are no multimer networks.
        """
        if sources := sources_of(self.sources, is_complex(target_input)):
            return sources
        if any(source.copies_template for source in self.sources):
            raise InputError("a complex of several chains: --params template copies single chains only")
        if self.sources[0].manifest is not None:
            name = self.sources[0].manifest.name
            raise InputError(f"a complex of several chains: the network {name} predicts single chains only")
        raise InputError(
            "a complex of several chains, which needs the parameters of AlphaFold-Multimer "
            "(foldcli params fetch --which multimer) and --model-type auto or multimer_v3"
        )

    def identity(self, target_input: TargetInput) -> dict[str, Any]:
        """Return everything that all predictions of a target depend on; models and seeds are not part of it.

        Raises:
            OSError: a file cannot be read.
        """
        if isinstance(target_input, CachedTarget):
            input_identity = target_input.identity
        elif isinstance(target_input, FastaRecord | Complex):
            assert self.request is not None
            input_identity = self.request.identity(target_input)
        else:
            input_identity = {"input": _content_hash(target_input)}
        templates = {} if self.templates is None else {"templates": self.templates}
        sources = self.sources_of(target_input)
        if any(source.copies_template for source in sources):
            # copies do not depend on the settings of networks
            return input_identity | {"predict": {"method": TEMPLATE}} | templates
        settings = self.settings.for_network(sources[0].is_multimer)
        return input_identity | {"predict": settings.identity()} | templates

    def jobs(self, target_input: TargetInput) -> list[Job]:
        """Return the jobs of a target: all models with the first seed, then all with the next seed.

        Raises:
            InputError: see `sources_of`.
        """
        return self._jobs(self.sources_of(target_input), self.settings.seeds(requested_seeds(target_input)))

    def all_jobs(self) -> list[Job]:
        """Return the jobs of a run that has single chains and complexes."""
        return self._jobs(self.sources, self.settings.seeds())

    def _jobs(self, sources: list[ParameterSource], seeds: list[int]) -> list[Job]:
        models = [
            (source, parameters["content"])
            for source, parameters in zip(self.sources, self.parameters, strict=True)
            if source in sources
        ]
        jobs = [Job(source, seed, content) for seed in seeds for source, content in models]
        # a copy of a template is the same for all seeds
        return list({job.tag: job for job in reversed(jobs)}.values())[::-1]


def requested_seeds(target_input: TargetInput) -> tuple[int, ...]:
    """Return the seeds that the job file of a target names; empty if there are none."""
    return target_input.seeds if isinstance(target_input, FastaRecord | Complex) else ()


def _content_hash(target: AlignmentTarget) -> str | list[str]:
    """Return the SHA-256 of each of a target's files, or of its content from standard input."""
    if target.content is not None:
        return hashlib.sha256(target.content).hexdigest()
    hashes = [file_sha256(Path(path)) for path in target.files]
    return hashes[0] if len(hashes) == 1 else hashes
