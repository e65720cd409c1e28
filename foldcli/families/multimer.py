"""AlphaFold-Multimer's networks, which predict complexes, and single chains if they are requested."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from features.complexes.features import complex_features
from foldcli.families.alphafold2 import AlignmentInputs, AlphaFold2Kind
from foldcli.families.settings import Job, NetworkOptions, PredictSettings
from foldcli.params.parameters import ParameterSource, find_parameters


class Multimer(AlphaFold2Kind):
    """AlphaFold-Multimer's networks; `AlphaFold2` finds their parameters."""

    name: ClassVar[str] = "multimer"
    rank_score: ClassVar[str] = "multimer"
    pairs_chains: ClassVar[bool] = True

    def claims(self, params: str | None) -> bool:
        """Return False: the same values name the parameters of `AlphaFold2`."""
        return False

    def own_settings(self, settings: PredictSettings) -> PredictSettings:
        """Return the settings of multimer networks; see `Family.own_settings`."""
        return settings.for_multimer()

    def sources(self, options: NetworkOptions, kinds: Sequence[Any]) -> list[ParameterSource]:
        """Return the parameter files; see `find_parameters`."""
        return find_parameters(options.params, options.models, options.model_type, ("multimer",))

    def accepts(self, target: Any, source: ParameterSource) -> str | None:
        """Return None: complexes and single chains can be predicted."""
        return None

    def uses_templates(self, source: ParameterSource) -> bool:
        """Return True: all of these networks take templates."""
        return True

    def sampling(self, job: Job, settings: PredictSettings) -> None:
        """Return None: the network samples the rows of each pass itself."""

    def sample(
        self,
        inputs: AlignmentInputs,
        job: Job,
        settings: PredictSettings,
        draw: Callable[..., Any] | None = None,
    ) -> Any:
        """Return the features of a complex, as they are; see `Family.sample`."""
        features = inputs.features
        if inputs.templates is not None:
            features = features | inputs.templates.features
        return features if "asym_id" in features else complex_features([features])
