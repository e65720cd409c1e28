"""Models that are copied from the best template instead of predicted by a network."""

from collections.abc import Callable
from typing import Any

import numpy as np

from features.templates.homology import HomologyModel, copy_best_template
from foldcli.outputs.model_files import ModelOrigin
from foldcli.params.parameters import TEMPLATE_COPY, ParameterSource
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.prepare.template_stage import TargetTemplates
from foldcli.pipeline.targets.identity import Job
from foldcli.pipeline.targets.settings import PredictSettings
from foldcli.progress import Progress
from model.prediction import Prediction
from msa.base.errors import InputError


class TemplateCopier:
    """A source of models that are copies of templates, with the methods of `Predictor`."""

    stage = "copy"
    is_untrained = False

    def __init__(self) -> None:
        self.sources = [TEMPLATE_COPY]
        self.settings = PredictSettings(num_recycles=0)
        self.memory = NetworkMemory("cpu")

    def describe(self) -> str:
        """Return a description of the device."""
        return "CPU, no network"

    def uses_templates(self, job: Job) -> bool:
        """Return True."""
        return True

    def warm_up(self, source: ParameterSource) -> None:
        """Do nothing."""

    def sampling(self, job: Job) -> None:
        """Return None: nothing is random."""
        return None

    def sample(
        self, features: dict[str, np.ndarray], templates: TargetTemplates | None, sampling: Any
    ) -> HomologyModel:
        """Copy the best template of a target.

        Raises:
            InputError: there is no template.
        """
        assert templates is not None
        model = copy_best_template(templates.hits)
        if model is None:
            raise InputError(f"no usable template to copy: {templates.describe_rejections()}")
        return model

    def start(
        self, name: str, job: Job, sample: HomologyModel, progress: Progress
    ) -> Callable[[], tuple[Prediction, ModelOrigin]]:
        """Return a function that returns the copy as a prediction, with the expected lDDT-CA as pLDDT."""
        progress(1, 1)
        prediction = Prediction(
            aatype=sample.aatype,
            residue_index=np.arange(len(sample.aatype)),
            atom_positions=sample.positions,
            atom_mask=sample.mask.astype(np.float32),
            plddt=sample.expected_lddt.astype(np.float64),
            ptm=None,
            pae=None,
            max_pae=None,
            num_recycles=0,
            tolerances=(),
        )
        origin = ModelOrigin(name, "no network", False, copied_from=sample.origin)
        return lambda: (prediction, origin)
