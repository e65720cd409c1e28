"""Features of complexes: from an A3M file, the feature cache, or the searches of the chains."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from features.complexes.a3m import ChainA3m, write_paired_a3m
from features.complexes.entities import AlignedRows
from features.complexes.features import features_of_rows, in_input_order
from features.complexes.merge import template_slots
from features.complexes.rows import ComplexRows, pair_chains
from features.templates.template_features import no_templates
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget, read_complex_entry
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.outputs.target import TargetRun
from foldcli.outputs.templates import record_templates
from foldcli.pipeline.prepare.cached_features import record_alignment_size, warn_of_missing_residues
from foldcli.pipeline.prepare.template_stage import TargetTemplates, TemplateStage, templates_of_job
from foldcli.pipeline.search.stores import ChainStore
from foldcli.pipeline.targets.layouts import layout_of
from foldcli.pipeline.targets.settings import FeatureSettings
from model.chains import chain_names, chain_slices
from msa.io.fasta import FastaRecord

# chains whose features are kept in memory, for other complexes with the same chains
_CHAINS_IN_MEMORY = 32


@dataclass(eq=False)
class _CachedChain:
    """A distinct chain of complexes, kept in memory.

    Args:
        templates: its templates; None until they are searched.
    """

    alignment: ChainA3m
    templates: TargetTemplates | None = None


class ComplexStage:
    """The features of the complexes of a run.

    Args:
        templates: the template stage; None to use no templates.
        chain_store: the alignments of searched chains; None if there are no searches.
    """

    def __init__(
        self,
        settings: FeatureSettings,
        templates: TemplateStage | None,
        chain_store: ChainStore | None = None,
    ) -> None:
        self._settings, self._templates, self._chain_store = settings, templates, chain_store
        self._cached_chains: OrderedDict[str, _CachedChain] = OrderedDict()

    def load(self, target: TargetRun, with_templates: bool) -> dict[str, np.ndarray]:
        """Return the features of a complex in `msa.base.network_inputs.COMPLEX`, chains in their order.

        Stages NAME.a3m and NAME.m8 if the chains were searched, and NAME_templates.tsv with templates.

        Raises:
            InputError: the alignment cannot be read, or a chain has none of the twenty residues.
        """
        own = templates_of_job(target.input, self._templates) if with_templates else {}
        search = with_templates and self._templates is not None
        with target.stage("features"):
            chains: list[_CachedChain] = []
            if isinstance(target.input, Complex):
                rows, chains = self._from_searches(target, target.input)
            else:
                rows = self._read_rows(target)
            found = self._find_templates(target, rows, chains, set(own) if search else None)
            templates = [
                no_templates(len(sequence)) if pair is None else pair[1].features
                for sequence, pair in zip(rows.sequences, found, strict=True)
            ]
            features = in_input_order(features_of_rows(rows, templates), rows)
            names = chain_names(len(rows.order))
            for name, residues in zip(names, chain_slices(features["asym_id"]), strict=True):
                if name in own:
                    for key, slots in template_slots(own[name].features).items():
                        features[key][:, residues] = slots
            if search or own:
                used = own | dict(pair for pair in found if pair is not None)
                record_templates(target, [(name, used[name]) for name in names if name in used])
        record_alignment_size(target, int(features["num_alignments"]), len(features["aatype"]))
        warn_of_missing_residues(target, rows.chains)
        target.facts.chains = int(features["assembly_num_chains"])
        return features

    def _read_rows(self, target: TargetRun) -> ComplexRows:
        """Return the rows of a complex given as an A3M file or as an entry of the feature cache."""
        source, verify = target.input, self._settings.verify
        if isinstance(source, CachedTarget):
            target.facts.feature_cache_hit = True
            return source.load_complex_rows(verify)
        assert isinstance(source, AlignmentTarget)
        file = source.files[0]
        if file.endswith(ENTRY_SUFFIX):
            target.facts.feature_cache_hit = True
            return read_complex_entry(file, verify=verify)
        contents = source.read_contents()
        rows = source.parse_complex(contents)
        assert rows is not None
        if len(contents) == 1:
            if file != "-":
                target.facts.alignment = str(Path(file).resolve())
            layout = layout_of(target.files.layout)
            layout.stage_alignment(target.files, contents[0], sum(map(len, rows.sequences)))
        return rows

    def _find_templates(
        self,
        target: TargetRun,
        rows: ComplexRows,
        chains: Sequence[_CachedChain],
        own: Collection[str] | None,
    ) -> list[tuple[str, TargetTemplates] | None]:
        """Find the templates of each distinct chain.

        Args:
            target: the complex.
            rows: its rows.
            chains: its chains, if they were searched.
            own: names of the chains to leave out, whose templates the job gives; None leaves out all.

        Returns:
            For each distinct chain, its first copy that is not left out, with its templates; None if all are.
        """
        found: list[tuple[str, TargetTemplates] | None] = []
        names = chain_names(len(rows.order))
        for index, (sequence, unpaired) in enumerate(zip(rows.sequences, rows.unpaired, strict=True)):
            copies = [
                name
                for name, entity in zip(names, rows.order, strict=True)
                if entity == index and own is not None and name not in own
            ]
            if not copies:
                found.append(None)
            elif not chains:
                features = _profile_features(sequence, unpaired)
                found.append((copies[0], self._find_for_chain(target, copies[0], features, index)))
            else:
                chain = chains[rows.order.index(index)]
                # a hit file may list different hits for the same chain in different targets
                if chain.templates is None or self._has_hit_file:
                    features = chain.alignment.features
                    chain.templates = self._find_for_chain(target, copies[0], features, index)
                found.append((copies[0], chain.templates))
        return found

    def _from_searches(self, target: TargetRun, source: Complex) -> tuple[ComplexRows, list[_CachedChain]]:
        """Return the rows and the chains of a searched complex, and stage its alignment."""
        assert self._chain_store is not None
        pairing = self._chain_store.pairing
        chains = [self._load_chain(chain_query(chain)) for chain in source.chains]
        alignments = [chain.alignment for chain in chains]
        named = {f"{target.name}_{name}": chain for name, chain in source.distinct_chains().items()}
        self._chain_store.stage(target, named, lambda stream: write_paired_a3m(stream, alignments, pairing))
        return pair_chains([chain.alignment.features for chain in chains], pairing), chains

    def _load_chain(self, query: FastaRecord) -> _CachedChain:
        """Return a searched chain, from memory if another complex has it."""
        assert self._chain_store is not None
        key = self._chain_store.store.request.fingerprint(query)
        if key not in self._cached_chains:
            self._cached_chains[key] = _CachedChain(ChainA3m.parse(self._chain_store.read(query)))
            if len(self._cached_chains) > _CHAINS_IN_MEMORY:
                self._cached_chains.popitem(last=False)
        self._cached_chains.move_to_end(key)
        return self._cached_chains[key]

    @property
    def _has_hit_file(self) -> bool:
        return self._templates is not None and self._templates.hits is not None

    def _find_for_chain(
        self, target: TargetRun, name: str, features: Mapping[str, np.ndarray], index: int
    ) -> TargetTemplates:
        assert self._templates is not None
        return self._templates.find(f"{target.name}_{name}", features, index)


def _profile_features(sequence: str, rows: AlignedRows) -> dict[str, np.ndarray]:
    """Return the features that a template search needs."""
    return {"msa": rows.codes, "sequence": np.array([sequence.encode("ascii")], object)}
