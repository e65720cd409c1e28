"""The search of one target."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.outputs import colabfold_layout
from foldcli.pipeline.alignment_request import AlignmentRequest
from foldcli.pipeline.target_run import TargetRun
from foldcli.pipeline.timing import StageCost
from foldcli.progress import progress_bar
from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.engine import Engine

SEARCHED = "search.json"


@dataclass(frozen=True)
class SearchStep:
    """Search one query, or take up the search of an interrupted run.

    Args:
        database: opened target database.
        engine: what searches; the hits do not depend on it.
        request: what is asked for, of this database.
    """

    database: "TargetDatabase"
    engine: "Engine"
    request: AlignmentRequest

    def run(self, target: TargetRun, query: "FastaRecord") -> Path:
        """Write NAME.a3m and NAME.m8 and return the A3M's path."""
        from msa.io.a3m import write_a3m
        from msa.io.m8 import DEFAULT_COLUMNS, write_m8
        from msa.search.alignment_filter import alignment_hits
        from msa.search.search import search

        a3m = target.files.path("alignment")
        key, settings = self.request.key(query), self.request.settings
        found = self._earlier(target)
        if found is not None and found["fingerprint"] == key and a3m.is_file():
            target.watch.costs.append(StageCost(**found["cost"]))
            target.facts["search"] = found
            self._remember(target)
            return a3m
        with target.stage("search"), progress_bar(f"{target.name}: search", "targets") as progress:
            hits = search(query, self.database, settings, progress, self.engine)
            with atomic_write(target.files.path("hits")) as stream:
                write_m8(stream, query, hits, DEFAULT_COLUMNS)
            with atomic_write(a3m) as stream:
                if target.files.layout == "colabfold":
                    stream.write(colabfold_layout.first_line(len(query.sequence)))
                rows = alignment_hits(query, hits, self.request.chosen, settings.threads)
                write_a3m(stream, query, rows)
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


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
