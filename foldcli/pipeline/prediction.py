"""The way of one target through search, features and prediction, resumable after each."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli import colabfold_layout, done
from foldcli.feature_step import load_or_make
from foldcli.fingerprint import fingerprint
from foldcli.job_draws import JobDraws
from foldcli.layout import TargetFiles
from foldcli.logs import logger
from foldcli.measure import StageCost, Stopwatch
from foldcli.parameters import UNTRAINED
from foldcli.predictor import Predictor
from foldcli.progress import bar
from foldcli.report.make import ReportSettings, try_report
from msa.atomic import atomic_write

if TYPE_CHECKING:
    import numpy as np

    from msa.alignment_filter import AlignmentFilter
    from msa.alignments import Alignment
    from msa.database import TargetDatabase
    from msa.engine import Engine
    from msa.fasta import FastaRecord
    from msa.search import SearchSettings

SEARCHED = "search.json"


@dataclass
class TargetRun:
    """One target on its way: where its files go and what its steps have cost."""

    files: TargetFiles
    watch: Stopwatch
    facts: dict[str, Any]
    warnings: list[str]

    @classmethod
    def begin(cls, files: TargetFiles) -> "TargetRun":
        return cls(files, Stopwatch(), {}, [])

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def folder(self) -> Path:
        """The folder that holds this target's files alone."""
        return self.files.own

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block as one stage of this target."""
        logger.debug("%s: %s", self.name, name)
        with self.watch.stage(name):
            yield

    @property
    def work(self) -> Path:
        """What is half-way; gone once the target is finished."""
        return self.files.work

    def clear(self) -> None:
        """Forget what was finished or half-way, so that all is done again."""
        self.unfinish()
        shutil.rmtree(self.work, ignore_errors=True)

    def unfinish(self) -> None:
        """Before files are replaced: from now on the target does not look finished."""
        for kind in ("done", "finished_mark"):
            self.files.path(kind).unlink(missing_ok=True)


def search_identity(
    query: "FastaRecord", checksums: dict[str, str], settings: "SearchSettings"
) -> dict[str, Any]:
    """What the hits depend on: query, content of the database, settings without the thread count.

    Args:
        query: header, residues, and the profile if it has one.
        checksums: of the database's parts.
        settings: see SearchSettings.
    """
    from msa.profile_query import ProfileQuery

    own: dict[str, Any] = {}
    if isinstance(query, ProfileQuery):
        own["profile"] = hashlib.sha256(query.profile.tobytes()).hexdigest()
        own["of_family"] = query.of_family
    return own | {
        "query": query.sequence,
        "header": query.header,
        "database": checksums,
        "search": {key: value for key, value in asdict(settings).items() if key != "threads"},
    }


def alignment_identity(chosen: "AlignmentFilter") -> dict[str, Any]:
    """What the rows of an alignment depend on, the hits apart."""
    return {"alignment": asdict(chosen)}


@dataclass(frozen=True)
class SearchStep:
    """Search one query, or take up the search of an interrupted run.

    Args:
        database: opened target database.
        settings: see SearchSettings.
        engine: what searches; the hits do not depend on it. None in a dry run, which only asks what they do
            depend on.
        chosen: which hits make the alignment's rows.
    """

    database: "TargetDatabase"
    settings: "SearchSettings"
    engine: "Engine | None"
    chosen: "AlignmentFilter"

    def identity(self, query: "FastaRecord") -> dict[str, Any]:
        """See search_identity and alignment_identity."""
        searched = search_identity(query, self.database.manifest.checksums, self.settings)
        return searched | alignment_identity(self.chosen)

    def run(self, target: TargetRun, query: "FastaRecord") -> Path:
        """Write NAME.a3m and NAME.m8 and return the A3M's path."""
        from msa.alignment_rows import alignment_hits
        from msa.formats.a3m import write_a3m
        from msa.formats.m8 import DEFAULT_COLUMNS, write_m8
        from msa.search import search

        a3m = target.files.path("alignment")
        key = fingerprint(self.identity(query))
        found = self._earlier(target)
        if found is not None and found["fingerprint"] == key and a3m.is_file():
            target.watch.costs.append(StageCost(**found["cost"]))
            target.facts["search"] = found
            self._remember(target)
            return a3m
        assert self.engine is not None
        with target.stage("search"), bar(f"{target.name}: search", "targets") as progress:
            hits = search(query, self.database, self.settings, progress, self.engine)
            with atomic_write(target.files.path("hits")) as stream:
                write_m8(stream, query, hits, DEFAULT_COLUMNS)
            with atomic_write(a3m) as stream:
                if target.files.layout == "colabfold":
                    stream.write(colabfold_layout.first_line(len(query.sequence)))
                write_a3m(stream, query, alignment_hits(query, hits, self.chosen, self.settings.threads))
        target.facts["search"] = {
            "fingerprint": key,
            "hits": len(hits),
            "cost": asdict(target.watch.costs[-1]),
        }
        self._remember(target)
        return a3m

    def _remember(self, target: TargetRun) -> None:
        """What an interrupted prediction's next run takes the search up from."""
        with atomic_write(target.work / SEARCHED) as stream:
            json.dump(target.facts["search"], stream)

    def _earlier(self, target: TargetRun) -> dict[str, Any] | None:
        """The record of the search whose files lie in the target's folder, if one was finished."""
        if (interrupted := _read_json(target.work / SEARCHED)) is not None:
            return interrupted
        finished = _read_json(target.files.path("done"))
        return None if finished is None else finished["facts"].get("search")


def cached_features(
    target: TargetRun, read: "Callable[[], list[Alignment]]", cache: Path, verify: bool = True
) -> "dict[str, np.ndarray]":
    """The deterministic features of a target, from the cache or computed and put there.

    Args:
        target: the target on its way.
        read: reads its alignments.
        cache: folder of the feature cache.
        verify: compare what is there with its checksum.
    """
    with target.stage("features"):
        features, hit = load_or_make(target.name, read(), cache, verify=verify)
    target.facts["feature_cache_hit"] = hit
    _note_size(target, features)
    return features


def entry_features(target: TargetRun, read: "Callable[[], dict[str, np.ndarray]]") -> "dict[str, np.ndarray]":
    """The deterministic features of a target of which the cache's entry is known; `read` reads it."""
    with target.stage("features"):
        features = read()
    target.facts["feature_cache_hit"] = True
    _note_size(target, features)
    return features


def _note_size(target: TargetRun, features: "dict[str, np.ndarray]") -> None:
    rows, residues = features["msa"].shape
    target.facts |= {"residues": int(residues), "alignment_rows": int(rows)}
    if rows == 1:
        target.warnings.append("the alignment holds the query alone")
        logger.warning("%s: the alignment holds the query alone; expect low confidence", target.name)


def unfinished_folder(target: TargetRun, key: str) -> Path:
    """Where finished models lie until all are.

    Args:
        target: the target on its way.
        key: the target's fingerprint.
    """
    return target.work / f"predict-{key[:16]}"


def predict_target(
    target: TargetRun,
    draws: JobDraws,
    predictor: Predictor,
    key: str,
    settings: dict[str, Any],
    report: ReportSettings,
    last_job: Callable[[], None] = lambda: None,
) -> None:
    """Predict, rank, make the report, write done.json, and clear what was half-way.

    Args:
        target: the target on its way.
        draws: of the predictor, from the target's deterministic features.
        predictor: networks and settings.
        key: the target's fingerprint.
        settings: what it was taken of.
        report: what people look at.
        last_job: see `Predictor.run`.
    """
    partial = unfinished_folder(target, key)
    predictor.memory.reset_peak()
    target.unfinish()
    with target.stage("predict"), bar(f"{target.name}: predict", "passes") as progress:
        ranked = predictor.run(target.name, draws, target.files, partial, progress, last_job)
    waited = target.facts.get("waited_for_features_seconds", 0.0) + draws.waited
    target.facts["waited_for_features_seconds"] = round(waited, 3)
    target.facts |= predictor.memory.facts()
    if predictor.untrained:
        target.warnings.append(UNTRAINED)
    finished = done.Done(
        target.name, key, settings, ranked, target.watch.costs, target.warnings, target.facts
    )
    failure: str | None = "the report was interrupted; foldcli report makes it"
    try:
        with target.stage("report"):
            failure = try_report(target.files, finished.content(), report)
    finally:
        # the prediction is whole, whatever became of its report
        target.warnings += [failure] if failure else []
        if target.files.layout == "colabfold":
            colabfold_layout.finish_target(target.files, ranked)
        finished.write(target.files.path("done"))
        shutil.rmtree(target.work, ignore_errors=True)
    best = ranked[0]
    told = {
        "target": target.name,
        "residues": target.facts["residues"],
        "alignment_rows": target.facts["alignment_rows"],
        "plddt": best.plddt,
        "ptm": best.ptm,
        "untrained": predictor.untrained,
        "seconds": round(sum(cost.seconds for cost in target.watch.costs), 3),
        "structure": str(target.files.model("pdb", 1, best.tag)),
    }
    confidence = f"pLDDT {best.plddt:.1f}" + ("" if best.ptm is None else f", pTM {best.ptm:.3f}")
    logger.info(
        "%s: %d residues, %d alignment rows, %s (%s), %.1f s → %s",
        target.name,
        told["residues"],
        told["alignment_rows"],
        "UNTRAINED, no meaning" if predictor.untrained else confidence,
        best.tag,
        told["seconds"],
        told["structure"],
        extra={"fields": told},
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
