"""The feature stage of complexes: from an A3M file, the feature cache, or the searches of the chains."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from features.alphafold2.deterministic import make_features
from features.complexes.a3m import write_paired_a3m
from features.complexes.entities import AlignedRows
from features.complexes.features import features_of_rows, in_input_order
from features.complexes.rows import ComplexRows, pair_chains
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget, read_complex_entry
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.outputs.templates import record_templates
from foldcli.pipeline.prepare.features import record_alignment_size, warn_of_missing_residues
from foldcli.pipeline.prepare.template_stage import TargetTemplates, TemplateStage
from foldcli.pipeline.search.chains import ChainStore
from foldcli.pipeline.targets.layouts import layout_of
from foldcli.pipeline.targets.settings import FeatureSettings
from foldcli.pipeline.targets.target import TargetRun
from model.chains import chain_names
from msa.alignments.files import parse_alignment
from msa.base.atomic import atomic_write
from msa.io.fasta import FastaRecord

# chains whose features are kept in memory, for other complexes with the same chains
_CHAINS_IN_MEMORY = 32


@dataclass(eq=False)
class _CachedChain:
    """A distinct chain of complexes, kept in memory.

    Args:
        alignment: content of its A3M file.
        features: features in `features.alphafold2.schema.CACHED`, without templates.
        templates: its templates; None until they are searched.
    """

    alignment: bytes
    features: dict[str, np.ndarray]
    templates: TargetTemplates | None = None


class ComplexStage:
    """The features of the complexes of a run.

    Args:
        settings: the feature cache.
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
        """Return the features of a complex in `schema.COMPLEX`, chains in the order of the input.

        Stages NAME.a3m and NAME.m8 if the chains were searched, and NAME_templates.tsv with templates.

        Raises:
            InputError: the alignment cannot be read, or a chain has none of the twenty residues.
            OSError: a file cannot be read or written.
        """
        with_templates = with_templates and self._templates is not None
        with target.stage("features"):
            if isinstance(target.input, Complex):
                rows, templates = self._from_searches(target, target.input, with_templates)
            else:
                rows = self._read_rows(target)
                templates = self._find_templates(target, rows) if with_templates else None
            features = in_input_order(features_of_rows(rows, templates), rows)
        record_alignment_size(target, int(features["num_alignments"]), len(features["aatype"]))
        warn_of_missing_residues(target, rows.chains)
        target.facts["chains"] = int(features["assembly_num_chains"])
        return features

    def _read_rows(self, target: TargetRun) -> ComplexRows:
        """Return the rows of a complex given as an A3M file or as an entry of the feature cache."""
        source, verify = target.input, self._settings.verify
        if isinstance(source, CachedTarget):
            target.facts["feature_cache_hit"] = True
            return source.load_complex_rows(verify)
        assert isinstance(source, AlignmentTarget)
        file = source.files[0]
        if file.endswith(ENTRY_SUFFIX):
            target.facts["feature_cache_hit"] = True
            return read_complex_entry(file, verify=verify)
        contents = source.read_contents()
        rows = source.parse_complex(contents)
        assert rows is not None
        if len(contents) == 1:
            if file != "-":
                target.facts["alignment"] = str(Path(file).resolve())
            layout = layout_of(target.files.layout)
            layout.stage_alignment(target.files, contents[0], sum(map(len, rows.sequences)))
        return rows

    def _find_templates(self, target: TargetRun, rows: ComplexRows) -> list[dict[str, np.ndarray]]:
        """Return the template features of each distinct chain, and stage their table."""
        names = _first_chain_names(rows)
        templates = [
            (name, self._find_for_chain(target, name, _profile_features(sequence, unpaired), index))
            for index, (name, sequence, unpaired) in enumerate(
                zip(names, rows.sequences, rows.unpaired, strict=True)
            )
        ]
        record_templates(target, templates)
        return [chain_templates.features for _, chain_templates in templates]

    def _from_searches(
        self, target: TargetRun, source: Complex, with_templates: bool
    ) -> tuple[ComplexRows, list[dict[str, np.ndarray]] | None]:
        """Return the rows and the template features of a searched complex, and stage its alignment."""
        assert self._chain_store is not None
        pairing = self._chain_store.store.request.settings.pairing
        chains = [self._load_chain(chain_query(chain)) for chain in source.chains]
        with atomic_write(target.files.staged_path("alignment")) as stream:
            write_paired_a3m(stream, [chain.alignment for chain in chains], pairing)
        tables = [
            self._chain_store.read_hits(chain_query(chain), f"{target.name}_{name}")
            for name, chain in source.distinct_chains().items()
        ]
        with atomic_write(target.files.staged_path("hits")) as stream:
            stream.writelines(tables)
        target.facts["search"] = {"hits": sum(table.count("\n") for table in tables)}
        rows = pair_chains([chain.features for chain in chains], pairing)
        if not with_templates:
            return rows, None
        templates = []
        for index, name in enumerate(_first_chain_names(rows)):
            chain = chains[rows.order.index(index)]
            # a hit file may list different hits for the same chain in different targets
            if chain.templates is None or self._has_hit_file:
                chain.templates = self._find_for_chain(target, name, chain.features, index)
            templates.append((name, chain.templates))
        record_templates(target, templates)
        return rows, [chain_templates.features for _, chain_templates in templates]

    def _load_chain(self, query: FastaRecord) -> _CachedChain:
        """Return a searched chain, from memory if another complex has it."""
        assert self._chain_store is not None
        key = self._chain_store.store.request.fingerprint(query)
        if key not in self._cached_chains:
            content = self._chain_store.read(query)
            self._cached_chains[key] = _CachedChain(content, make_features([parse_alignment(content)]))
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


def _first_chain_names(rows: ComplexRows) -> list[str]:
    """Return the name of the first copy of each distinct chain."""
    names = chain_names(len(rows.order))
    return [names[rows.order.index(index)] for index in range(len(rows.sequences))]


def _profile_features(sequence: str, rows: AlignedRows) -> dict[str, np.ndarray]:
    """Return the features that a template search needs."""
    return {"msa": rows.codes, "sequence": np.array([sequence.encode("ascii")], object)}
