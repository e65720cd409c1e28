"""Networks with a manifest, such as the compact network: those that `foldcli train --package` writes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from features.alphafold2.alignment_depth import effective_sequences
from features.alphafold2.sampling import SamplingSettings
from features.templates.library.settings import TemplateSettings
from features.templates.template_features import without_side_chains
from foldcli.families.alphafold2 import AlignmentInputs, SingleChainFamily
from foldcli.families.protocols import Templates
from foldcli.families.reporting import ParametersFinding
from foldcli.families.settings import AlphaFold2Settings, NetworkOptions
from foldcli.inputs.targets import is_complex
from foldcli.outputs.facts import NetworkFacts
from foldcli.outputs.network_note import describe_network, network_facts
from foldcli.params.parameters import ParameterSource, network_folder
from foldcli.values import value_or_default
from model.alphafold2.modules.config import ModelConfig
from model.checkpoints.network_folder import NetworkManifest, read_weights_file


class Native(SingleChainFamily):
    """Networks that foldcli has trained; their manifest gives sizes, defaults and measured accuracy."""

    name: ClassVar[str] = "native"
    own_options: ClassVar[frozenset[str]] = SingleChainFamily.own_options - {"models", "model_type"}

    def claims(self, params: str | None) -> bool:
        """Return True for the folder of a network with a manifest, and for its name in the package."""
        return network_folder(params) is not None

    def refusal(self, option: str) -> str:
        """Return the reason why an option cannot be used; see `Family.refusal`."""
        if option in SingleChainFamily.own_options:
            return "there is one network in the folder of --params"
        return super().refusal(option)

    def settings(self, options: NetworkOptions) -> AlphaFold2Settings:
        """Return settings with the sizes and defaults that the manifest gives; see `Family.settings`."""
        found = network_folder(options.params)
        assert found is not None
        inputs, predict = found[1].inputs, options.predict
        settings: AlphaFold2Settings = replace(
            predict,
            num_recycles=value_or_default(options.num_recycles, inputs.num_recycles),
            max_seq=min(predict.max_seq, inputs.msa_rows),
            max_extra_seq=min(predict.max_extra_seq, inputs.extra_rows),
            refine=value_or_default(options.refine, True),
        )
        return settings

    def check_installed(self, params: str) -> list[ParametersFinding]:
        """Check the file of weights; see `Family.check_installed`."""
        found = network_folder(params)
        assert found is not None
        read_weights_file(*found)
        return [ParametersFinding(f"network {found[1].title} in {found[0]}")]

    def kernel_networks(self, params: str | None, numbers: Sequence[int]) -> list[ModelConfig]:
        """Return the network of a folder; see `Family.kernel_networks`."""
        found = network_folder(params)
        return [found[1].config] if found is not None else []

    def accepts(self, target: Any, source: ParameterSource) -> str | None:
        """Return None for single chains; see `Family.accepts`."""
        if not is_complex(target):
            return None
        return f"a complex of several chains: the network {source.label} predicts single chains only"

    def template_search(self, search: TemplateSettings, source: ParameterSource) -> TemplateSettings:
        """Return a search for as many templates as a network takes, by the accuracy of their copies."""
        templates = _manifest(source).inputs.templates
        return replace(search, max_templates=templates, by_copy_accuracy=True) if templates else search

    def uses_templates(self, source: ParameterSource) -> bool:
        """Return True if the network was trained with templates; see `Family.uses_templates`."""
        return bool(_manifest(source).inputs.templates)

    def template_features(self, templates: Templates, source: ParameterSource) -> dict[str, np.ndarray]:
        """Return the features of templates, without side chains if the training had none."""
        with_side_chains = _manifest(source).inputs.template_side_chains
        return templates.features if with_side_chains else without_side_chains(templates.features)

    def _sampling_settings(self, source: ParameterSource, settings: AlphaFold2Settings) -> SamplingSettings:
        inputs = _manifest(source).inputs
        return SamplingSettings(
            settings.max_seq,
            settings.max_extra_seq,
            inputs.templates,
            inputs.masked_fraction,
            inputs.resample,
            settings.msa_mask,
            settings.msa_cluster or settings.dropout,
        )

    def network_facts(
        self,
        source: ParameterSource,
        inputs: AlignmentInputs,
        settings: AlphaFold2Settings,
        own_templates: bool,
    ) -> NetworkFacts:
        """Return origin, templates and expected accuracy; see `Family.network_facts`."""
        manifest, msa = _manifest(source), inputs.features["msa"]
        candidates = [] if inputs.templates is None else inputs.templates.hits.templates
        unmeasured = settings.unmeasured(manifest.inputs)
        if candidates and own_templates:
            unmeasured.append("templates of your own")
        return network_facts(manifest, candidates, msa.shape[1], effective_sequences(msa), unmeasured)

    def describe_network(self, source: ParameterSource) -> str:
        """Return what holds for all predictions of a network; see `Family.describe_network`."""
        return describe_network(_manifest(source))


def _manifest(source: ParameterSource) -> NetworkManifest:
    assert source.manifest is not None
    return source.manifest
