"""Identities of targets: everything that the results of a run depend on, and the jobs that make them."""

from dataclasses import dataclass

from foldcli.families.base import AnyFamily
from foldcli.families.registry import family_of, sources_for
from foldcli.families.settings import Job, JobSettings, Source
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from msa.base.errors import InputError


@dataclass(frozen=True)
class TargetIdentities:
    """Identities and fingerprints of a run's targets.

    Args:
        sources: models in the order in which they run.
        parameters: label, network and content hash of each model's parameters; see `check_parameters`.
        request: request for the queries' alignments; None if there are no queries, or no database yet.
        templates: everything that the templates depend on; None without templates.
    """

    sources: list[Source]
    parameters: list[dict[str, str]]
    settings: JobSettings
    request: AlignmentRequest | None = None
    templates: dict[str, object] | None = None

    def sources_of(self, target_input: object) -> list[Source]:
        """Return the models that predict a target; see `foldcli.families.registry.sources_for`."""
        return sources_for(target_input, self.sources)

    def family_of(self, target_input: object) -> AnyFamily:
        """Return the family that predicts a target; raises the exceptions of `sources_of`."""
        return family_of(self.sources_of(target_input)[0])

    def approximate_size(self, target_input: object) -> int:
        """Return a size of a target to sort by, as its family guesses it; 0 if no model predicts it."""
        try:
            return self.family_of(target_input).approximate_size(target_input)
        except InputError:
            return 0

    def identity(self, name: str, target_input: object) -> dict[str, object]:
        """Return everything that all predictions of a target depend on; models and seeds are not part of it.

        Raises:
            InputError: see `sources_of` and `JobSettings.identity_of`.
        """
        family = self.family_of(target_input)
        templates = {} if self.templates is None else {"templates": self.templates}
        input_identity = family.target_identity(target_input, self.request)
        return input_identity | family.identity(self.settings) | templates | self.settings.identity_of(name)

    def jobs(self, target_input: object) -> list[Job]:
        """Return the jobs of a target: all models with the first seed, then all with the next seed."""
        sources = self.sources_of(target_input)
        seeds = family_of(sources[0]).seeds(target_input)
        return self._jobs(sources, self.settings.seeds(seeds))

    def all_jobs(self) -> list[Job]:
        """Return the jobs of a run that has targets for all of its models."""
        return self._jobs(self.sources, self.settings.seeds())

    def _jobs(self, sources: list[Source], seeds: list[int]) -> list[Job]:
        models = [
            (source, parameters["content"])
            for source, parameters in zip(self.sources, self.parameters, strict=True)
            if source in sources
        ]
        jobs = [Job(source, seed, content) for seed in seeds for source, content in models]
        # a copy of a template is the same for all seeds
        return list({job.tags: job for job in reversed(jobs)}.values())[::-1]
