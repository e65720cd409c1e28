"""Models that are copied from the best template instead of predicted by a network."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from features.templates.homology import HomologyModel, copy_best_template
from foldcli.errors import OptionError
from foldcli.families.alphafold2 import AlignmentFamily, AlignmentInputs, AlphaFold2Family
from foldcli.families.base import Draw
from foldcli.families.protocols import DeviceMemory, NetworkJob
from foldcli.families.reporting import PlanHeading
from foldcli.families.settings import AlphaFold2Settings, Job, NetworkOptions
from foldcli.inputs.targets import is_complex
from foldcli.outputs.model_files import ModelOrigin
from foldcli.outputs.templates import used_templates
from foldcli.params.parameters import TEMPLATE, TEMPLATE_COPY, ParameterSource
from model.prediction import Prediction
from model.structure import protein_structure
from msa.base.errors import InputError


class TemplateCopy(AlignmentFamily[HomologyModel]):
    """Copies of the best template of a single chain."""

    name: ClassVar[str] = "template"
    papers: ClassVar[tuple[str, ...]] = ()
    stage: ClassVar[str] = "copy"
    has_network: ClassVar[bool] = False
    unshared: ClassVar[str | None] = "--params template runs no network that several processes could share."

    def claims(self, params: str | None) -> bool:
        """Return True for "template"."""
        return params == TEMPLATE

    def refusal(self, option: str) -> str:
        """Return the reason; see `Family.refusal`."""
        if option in AlphaFold2Family.own_options:
            return "only networks have it, and --params template copies"
        return super().refusal(option)

    def check_options(self, values: Mapping[str, Any]) -> None:
        """Check that templates are searched; see `Family.check_options`."""
        if values["no_templates"]:
            raise OptionError("--params template and --no-templates exclude each other")

    def settings(self, options: NetworkOptions) -> AlphaFold2Settings:
        """Return settings without recycles: copies do not depend on the options of networks."""
        return AlphaFold2Settings(num_recycles=0)

    def sources(self, options: NetworkOptions, families: Sequence[Any]) -> list[ParameterSource]:
        """Return the only source, which has no parameters."""
        return [TEMPLATE_COPY]

    def accepts(self, target: Any, source: ParameterSource) -> str | None:
        """Return None for single chains; see `Family.accepts`."""
        if not is_complex(target):
            return None
        return "a complex of several chains: --params template copies single chains only"

    def identity(self, settings: AlphaFold2Settings) -> dict[str, Any]:
        """Return the method; see `Family.identity`."""
        return {"predict": {"method": TEMPLATE}}

    def uses_templates(self, source: ParameterSource) -> bool:
        """Return True."""
        return True

    def sampling(self, job: Job, settings: AlphaFold2Settings) -> None:
        """Return None: nothing is random."""

    def sample(
        self, inputs: AlignmentInputs, job: Job, settings: AlphaFold2Settings, draw: Draw = None
    ) -> HomologyModel:
        """Copy the best template of a target.

        Raises:
            InputError: there is no template.
        """
        templates = inputs.templates
        assert templates is not None
        model = copy_best_template(templates.hits)
        if model is None:
            raise InputError(f"no usable template to copy: {templates.describe_rejections()}")
        return model

    def load(
        self, source: ParameterSource, settings: AlphaFold2Settings, device: str, arrays: "Future[Any] | None"
    ) -> "Copies":
        """Return the source of copies; see `Family.load`."""
        return Copies()

    def origin(
        self, name: str, job: Job, sample: HomologyModel, model: Prediction, settings: AlphaFold2Settings
    ) -> ModelOrigin:
        """Return the template that was copied; see `Family.origin`."""
        used = used_templates("A", sample.hits)
        return ModelOrigin(name, "no network", False, copied_from=sample.origin, templates=used)

    def describe_device(self, settings: AlphaFold2Settings, memory: DeviceMemory) -> str:
        """Return a description of the device."""
        return "CPU, no network"

    def plan_heading(
        self, sources: Sequence[ParameterSource], settings: AlphaFold2Settings, memory: DeviceMemory
    ) -> PlanHeading:
        """Return the heading about the method; see `Family.plan_heading`."""
        line = "network: none; the best template of each target is copied"
        return PlanHeading(line, "network", {"models": [source.label for source in sources]})


@dataclass(frozen=True)
class Copies:
    """The source of copies; see `foldcli.families.protocols.Network`."""

    def start(
        self, work: NetworkJob[HomologyModel, AlphaFold2Settings], memory: DeviceMemory
    ) -> Callable[[], tuple[Prediction, ...]]:
        """Return a function that returns the copy as a prediction, with the expected lDDT-CA as pLDDT."""
        work.progress(1, 1)
        sample = work.sample
        structure = protein_structure(sample.aatype, np.arange(len(sample.aatype)), sample.mask)
        positions = sample.positions[sample.mask]
        prediction = Prediction(structure, positions, sample.expected_lddt.astype(np.float64))
        return lambda: (prediction,)

    def warm_up(self, residues: int) -> None:
        """Do nothing."""
