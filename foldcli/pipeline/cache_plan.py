"""`foldcli cache-features --dry-run`: which entries would be made, and which are there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.shard import Shard
from foldcli.pipeline.cache_run import CacheRun
from foldcli.pipeline.dry_run import DONE, TO_DO, database_fact, plan, tell
from foldcli.pipeline.failures import Failures

if TYPE_CHECKING:
    from msa.io.fasta import FastaRecord


def plan_cache(
    named: "Sequence[tuple[str, AlignmentTarget | FastaRecord]]",
    run: CacheRun,
    shard: Shard,
    failures: Failures,
) -> None:
    """Tell what a run would do; alignments are read for it, and nothing is searched with.

    Args:
        named: (name, alignments or sequence) of all there are.
        run: what would do it.
        shard: the run's part of the targets.
        failures: see `dry_run.plan`.

    Raises:
        SomeTargetsFailed, TargetFailed: a target or a file is invalid.
    """
    from features.cache import FeatureCache, cache_key
    from foldcli.pipeline.cached_searches import CachedSearches
    from foldcli.pipeline.searcher import find_database
    from msa.search.search import check_query

    database = None if run.db is None else find_database(run.db)
    entries = FeatureCache(run.cache)

    def look(item: "AlignmentTarget | FastaRecord") -> tuple[int, str | None]:
        if isinstance(item, AlignmentTarget):
            alignments = item.read()
            return len(alignments[0].query), cache_key(alignments)
        check_query(item)
        if database is not None:
            searches = CachedSearches(run.cache, database, run.request(database), run.device)
            path = searches.path(names[id(item)], item)
            if path.is_file():
                return look(AlignmentTarget(names[id(item)], (str(path),)))
        return len(item.sequence), None

    def state(name: str, key: str | None) -> str:
        there = key is not None and not run.overwrite and entries.path(key).is_file()
        return DONE if there else TO_DO

    names = {id(item): name for name, item in named}
    facts = [f"feature cache: {run.cache}"]
    if run.db is not None:
        facts.append(database_fact(run.db, database))
    tell(plan(named, look, shard, state, failures), facts, failures)
