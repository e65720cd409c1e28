"""The feature stage of a run: features and templates of targets of every kind."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import IO

import numpy as np

from features.assembly.job import JobTemplate
from features.cache.entry import read_entry
from features.templates.table import write_template_table
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.inputs.targets import is_complex
from foldcli.logs import logger
from foldcli.outputs.target import TargetRun
from foldcli.outputs.templates import used_templates
from foldcli.pipeline.prepare.cached_features import load_or_make_features, record_size
from foldcli.pipeline.prepare.complex_stage import ComplexStage
from foldcli.pipeline.prepare.template_stage import (
    TargetTemplates,
    TemplateStage,
    templates_of_chain,
    templates_of_job,
)
from foldcli.pipeline.search.stores import ChainStore
from foldcli.pipeline.targets.layouts import layout_of
from foldcli.pipeline.targets.settings import FeatureSettings
from msa.alignments.files import Alignment, read_alignment
from msa.base.atomic import atomic_write
from msa.io.fasta import FastaRecord


class FeatureStage:
    """The features of a run's targets, which several threads may load; see `Family.inputs`.

    Args:
        templates: the template stage; None to use no templates.
        chain_store: the alignments of searched chains; None if there are no searches.
    """

    def __init__(
        self,
        settings: FeatureSettings,
        templates: TemplateStage | None,
        input_indices: Mapping[str, int],
        chain_store: ChainStore | None,
    ) -> None:
        self.settings, self.templates, self.chain_store = settings, templates, chain_store
        self._input_indices = input_indices
        self._complexes = ComplexStage(settings, templates, chain_store)
        # templates are searched for one target at a time
        self.template_lock = Lock()

    def load(
        self, target: TargetRun, with_templates: bool
    ) -> tuple[dict[str, np.ndarray], TargetTemplates | None]:
        """Return the features of a target, and the templates of a single chain.

        The features of a complex contain its templates.

        Args:
            target: a locked target.
            with_templates: whether to use the target's own templates or, unless the search is off, to find
                some, and to stage NAME_templates.tsv.

        Raises:
            InputError: an alignment or a cache entry is invalid.
        """
        # files of an interrupted run with other input or settings
        shutil.rmtree(target.files.search_folder, ignore_errors=True)
        if is_complex(target.input):
            with self.template_lock:
                return self._complexes.load(target, with_templates), None
        features = self._load_features(target)
        with self.template_lock:
            return features, self._find_templates(target, features) if with_templates else None

    def templates_of_chain(
        self, name: str, sequence: str, templates: Sequence[JobTemplate]
    ) -> TargetTemplates:
        """Return the templates that a job gives to a chain; see `FeatureServices`."""
        return templates_of_chain(name, sequence, templates, self.templates)

    def _load_features(self, target: TargetRun) -> dict[str, np.ndarray]:
        """Return the features of a single chain, from the cache, its alignments or its cache entry."""
        verify, source = self.settings.verify, target.input
        assert not isinstance(source, Complex)
        is_entry = isinstance(source, AlignmentTarget) and source.files[0].endswith(ENTRY_SUFFIX)
        contents = source.read_contents() if isinstance(source, AlignmentTarget) and not is_entry else []
        if contents and "-" not in source.files:
            target.facts.alignment = str(Path(source.files[0]).resolve())
        with target.stage("features"):
            if isinstance(source, CachedTarget):
                features, was_cached = source.load_features(verify), True
            elif is_entry:
                features, was_cached = read_entry(source.files[0], verify=verify), True
            else:
                alignments = (
                    source.parse(contents) if contents else [self._searched_alignment(target, source)]
                )
                features, was_cached = load_or_make_features(target.name, alignments, self.settings)
        target.facts.feature_cache_hit = was_cached
        record_size(target, features)
        if len(contents) == 1:
            layout = layout_of(target.files.layout)
            layout.stage_alignment(target.files, contents[0], features["msa"].shape[1])
        return features

    def _searched_alignment(self, target: TargetRun, query: FastaRecord) -> Alignment:
        """Stage the alignment of a searched query, and return it; the cache records the file that remains."""
        store, files = self.chain_store, target.files
        assert store is not None

        def write(stream: IO[str]) -> None:
            _, _, rows = store.read(chain_query(query)).decode().partition("\n")
            stream.write(layout_of(files.layout).first_line(len(query.sequence)))
            stream.write(f">{query.header}\n{rows}")

        store.stage(target, {query.id: query}, write)
        return replace(read_alignment(files.staged_path("alignment")), source=str(files.path("alignment")))

    def _find_templates(self, target: TargetRun, features: dict[str, np.ndarray]) -> TargetTemplates | None:
        """Return the templates of a single chain, its own or those of a search; None without either.

        Stages NAME_templates.tsv.
        """
        templates = templates_of_job(target.input, self.templates).get("A")
        if templates is None and self.templates is None:
            return None
        with target.stage("templates"):
            if templates is None:
                assert self.templates is not None
                templates = self.templates.find(target.name, features, self._input_indices[target.name])
            with atomic_write(target.files.staged_path("templates")) as stream:
                write_template_table(stream, templates.hits, templates.unusable)
        target.facts.templates = templates.facts()
        target.used_templates = used_templates("A", templates.hits)
        for name, reason in templates.unusable:
            logger.warning("%s: template %s not used: %s", target.name, name, reason)
        return templates
