"""The template stage: the search for a target's templates with the alignment of its features."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from features.assembly.job import JobTemplate
from features.templates.candidates import TemplateHits
from features.templates.library.library import EMBEDDED, StructureLibrary, is_library
from features.templates.library.settings import TemplateSettings
from features.templates.search import features_query, hit_features, search_templates
from features.templates.template_features import no_templates
from features.templates.user_templates import (
    find_entry,
    hits_of_query,
    open_or_build_library,
    read_hit_file,
    select_from_mirror,
)
from foldcli.logs import logger, warn_unusable_files
from foldcli.outputs.facts import TemplateFacts
from foldcli.paths import cache_dir
from foldcli.pipeline.targets.settings import TemplateOptions
from foldcli.progress import progress_bar
from model.chains import chain_names
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord


@dataclass(frozen=True)
class TargetTemplates:
    """The templates of one target.

    Args:
        features: the template features; those of `no_templates` if there are none.
        unusable: names of templates in the hit file that cannot be used, and the reasons.
    """

    hits: TemplateHits
    features: dict[str, np.ndarray] = field(repr=False)
    unusable: tuple[tuple[str, str], ...] = ()

    def describe_rejections(self) -> str:
        """Return the reason why the first candidate is not used, and the number of other rejections."""
        reasons = [
            f"{candidate.id}: {candidate.rejection}"
            for candidate in self.hits.candidates
            if candidate.rejection
        ]
        reasons += [f"{name}: {reason}" for name, reason in self.unusable]
        if not reasons:
            return "the search found no candidate"
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        return f"{reasons[0]}{more}"

    def facts(self, chain: str | UnsetType = UNSET) -> list[TemplateFacts]:
        """Return the used templates for done.json, of a chain of a complex if it is given."""
        return [
            TemplateFacts(
                chain=chain,
                id=each.id,
                source=each.source,
                identity=round(each.identity, 3),
                coverage=round(each.query_coverage, 3),
                evalue=each.evalue,
            )
            for each in self.hits.templates
        ]


@dataclass(frozen=True, eq=False)
class TemplateStage:
    """A source of templates for the targets of a run.

    Args:
        library: the structure library; None if templates come from a hit file.
        hits: names of hits by query, from the hit file; None if templates come from a library.
        mirror: folder of the PDB entries that the hit file names.
        from_user: whether the structures are not those that come with foldcli.
    """

    library: StructureLibrary | None
    settings: TemplateSettings
    hits: dict[str, list[str]] | None = None
    hit_file: Path | None = None
    mirror: Path | None = None
    from_user: bool = False

    @classmethod
    def open(cls, options: TemplateOptions, cache_dir: Path) -> "TemplateStage":
        """Open the library, building it first from a folder of structures, or read the hit file.

        Raises:
            InputError: the library is damaged, or there are no usable structures or no hits.
        """
        if options.hit_file is not None:
            assert options.mirror is not None
            if not options.mirror.is_dir():
                raise InputError("no such folder", options.mirror)
            hits = read_hit_file(options.hit_file)
            return cls(None, options.search, hits, options.hit_file, options.mirror, from_user=True)
        path = options.custom_path or options.library or EMBEDDED
        with progress_bar("building the structure library", "files") as progress:
            library = open_or_build_library(path, cache_dir, options.search.threads, progress)
        if not is_library(path):
            warn_unusable_files(library.manifest.unreadable, str(library.path), library.manifest.remarks)
        stage = cls(library, options.search, from_user=path != EMBEDDED)
        if stage.has_no_dates:
            logger.warning(
                "no templates: %s has no release dates, so that --max-template-date leaves none; "
                "name dated structures with --templates",
                "the library that comes with foldcli" if path == EMBEDDED else path,
            )
        return stage

    @property
    def has_no_dates(self) -> bool:
        """True if a latest date is set, and the library has no release dates: there are no templates."""
        dated = self.library is None or self.library.manifest.dated_chains > 0
        return self.settings.max_template_date is not None and not dated

    def identity(self) -> dict[str, object]:
        """Return everything that templates depend on; the number of threads is not part of it."""
        settings = {name: value for name, value in asdict(self.settings).items() if name != "threads"}
        # JSON has no infinity
        settings["evalue"] = self.settings.evalue if math.isfinite(self.settings.evalue) else None
        if not self.settings.by_copy_accuracy:
            # earlier results do not name this setting
            del settings["by_copy_accuracy"]
        if self.library is not None:
            return {"library": self.library.checksums, "settings": settings}
        assert self.hits is not None and self.hit_file is not None and self.mirror is not None
        # structures are identified by size and time, because reading all of them may take long
        names = sorted({name.rpartition("_")[0] for names in self.hits.values() for name in names})
        paths = [path for name in names if (path := find_entry(self.mirror, name)) is not None]
        status = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        return {"hits": file_sha256(self.hit_file), "structures": status, "settings": settings}

    def find(self, name: str, features: Mapping[str, np.ndarray], index: int = 0) -> TargetTemplates:
        """Find the templates of a target.

        Args:
            name: name of the target.
            features: its deterministic features, whose alignment gives the profile.
            index: index of the target in the input, or of the chain in its complex, which is the name of the
                query in hit files of ColabFold.

        Raises:
            InputError: the library is damaged.
        """
        query = features_query(features, name)
        if self.library is not None:
            return self._find_in_library(self.library, query)
        assert self.hits is not None and self.mirror is not None
        names = hits_of_query(self.hits, name, index)
        with tempfile.TemporaryDirectory() as folder:
            selected = select_from_mirror(names, self.mirror, Path(folder, "library"))
            unusable = tuple(selected.unusable)
            if selected.library is None:
                return TargetTemplates(
                    TemplateHits(query.sequence), no_templates(len(query.sequence)), unusable
                )
            return self._find_in_library(selected.library, query, unusable)

    def _find_in_library(
        self, library: StructureLibrary, query: FastaRecord, unusable: tuple[tuple[str, str], ...] = ()
    ) -> TargetTemplates:
        hits = search_templates(query, library, self.settings)
        return TargetTemplates(hits, hit_features(hits), unusable)


def templates_of_job(source: Any, stage: TemplateStage | None) -> dict[str, TargetTemplates]:
    """Return the templates that a job file gives to its chains, by the names of the chains.

    Args:
        source: a query or complex, or an input of another kind, which gives none.
        stage: the search for templates of other chains, whose largest number holds for these too.

    Raises:
        InputError: a template cannot be read; names its place in the file.
    """
    given: Sequence[Sequence[JobTemplate] | None] = getattr(source, "templates", ())
    if not given:
        return {}
    sequences = source.sequence.split(":")
    return {
        name: templates_of_chain(name, sequence, templates, stage)
        for name, sequence, templates in zip(chain_names(len(given)), sequences, given, strict=True)
        if templates is not None
    }


def templates_of_chain(
    name: str, sequence: str, templates: Sequence[JobTemplate], stage: TemplateStage | None
) -> TargetTemplates:
    """Return the templates that a job file gives to a chain; see `templates_of_job`."""
    # imports gemmi, which runs without such templates load later
    from features.templates.job_templates import job_template_hits

    settings = TemplateSettings() if stage is None else stage.settings
    hits, unusable = job_template_hits(sequence, templates, name, settings.max_templates)
    return TargetTemplates(hits, hit_features(hits), unusable)


def warn_of_unused_templates(name: str, source: object, reason: str) -> None:
    """Warn that the templates that a job file gives to a target's chains are not used, if it gives any."""
    if any(getattr(source, "templates", ())):
        logger.warning("%s: the templates of the job file are not used: %s", name, reason)


def open_library(library: Path | None, threads: int) -> TemplateStage:
    """Open a structure library; None is the one that comes with foldcli."""
    search = TemplateSettings(threads=threads)
    return TemplateStage.open(TemplateOptions(library, None, None, None, search), cache_dir())
