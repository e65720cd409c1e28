"""Searches for the RNA chains of jobs, which then have alignments as if the job gave them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from features.assembly.job import Entity, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.complexes import chain_query
from foldcli.inputs.failures import Failures
from foldcli.logs import logger
from foldcli.pipeline.search.chain_search import ChainSearch
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.locks import TargetLocks
from msa.alignments.files import parse_alignment
from msa.io.fasta import FastaRecord
from msa.io.molecules import RNA

_MIN_LENGTH = 2


@dataclass(frozen=True)
class RnaSearch:
    """A database of RNA that is searched with the chains of jobs, on the CPU.

    Args:
        settings: of the searches for proteins; for RNA, scores and gap costs are RNA's.
        cache: folder of the feature cache, which keeps the alignments.
    """

    db: str
    settings: AlignmentSettings
    cache: Path

    def add_alignments(
        self, targets: Sequence[tuple[str, Any]], failures: Failures, dry_run: bool = False
    ) -> list[tuple[str, Any]]:
        """Return the targets of a run; jobs have alignments of their RNA chains.

        Args:
            targets: names and targets.
            failures: gets jobs whose search fails, which are left out.
            dry_run: search nothing, and use the alignments of earlier searches.

        Raises:
            InputError: the database is damaged, or one of proteins.
        """
        if not any(_chains(target) for _, target in targets):
            return list(targets)
        source, settings = DatabaseSource(self.db, "cpu", molecule=RNA), self.settings.for_rna()
        database = source.open_existing() if dry_run else source.open()
        if database is None:
            return list(targets)
        store = ChainStore(CacheStore(self.cache, AlignmentRequest(database.checksums, settings)))
        if dry_run:
            return [(name, _aligned(target, store)) for name, target in targets]
        stage = SearchStage(open_searcher(source, database), settings)
        found: dict[str, Any] = {}
        with TargetLocks(Event()) as locks:
            search = ChainSearch(stage, store, locks)
            for result in search.search_ahead(targets, lambda pair: list(_chains(pair[1]).values())):
                name, target = result.target
                error = result.error
                if error is None:
                    found[name] = _aligned(target, store)
                else:
                    failures.add(name, error)
        return [(name, found[name]) for name, _ in targets if name in found]


def _chains(target: Any) -> dict[str, FastaRecord]:
    """Return the distinct RNA sequences of a job without an alignment, as queries; {} for other targets."""
    return {
        entity.sequence: FastaRecord(f"{target.name}_{entity.chains[0]}", entity.sequence)
        for entity in (target.entities if isinstance(target, MoleculeJob) else ())
        if isinstance(entity, Polymer) and entity.kind == MoleculeKind.RNA and not entity.has_rows
        if len(entity.sequence) >= _MIN_LENGTH
    }


def _aligned(target: Any, store: ChainStore) -> Any:
    """Return a target with the alignments that are stored for its RNA chains."""
    chains = _chains(target)
    alignments = {
        sequence: parse_alignment(store.read(chain_query(query)))
        for sequence, query in chains.items()
        if store.is_finished(query.id, chain_query(query))
    }

    def aligned(entity: Entity) -> Entity:
        if not isinstance(entity, Polymer) or entity.kind != MoleculeKind.RNA:
            return entity
        if entity.has_rows or (alignment := alignments.get(entity.sequence)) is None:
            return entity
        logger.info("%s: RNA %s: %d rows", target.name, entity.chains[0], len(alignment) - 1)
        return replace(entity, alignment=alignment)

    return replace(target, entities=tuple(map(aligned, target.entities))) if alignments else target
