"""Stores for the alignments of queries: the feature cache, or the work folders of a run's targets."""

import gzip
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from features.complexes.a3m import parse_chains, write_paired_a3m
from foldcli.inputs.complexes import Complex
from foldcli.logs import logger
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.layout import FileKind, TargetFiles
from foldcli.outputs.model_files import link_file
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.search.hit_texts import HitTexts
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.layouts import layout_of
from msa.base.atomic import atomic_write, writing_cache
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.base.json_files import read_json
from msa.base.temporary_names import remove_abandoned_files
from msa.io.fasta import FastaRecord

SEARCH_RECORD = "search.json"
"""Name of the record of a finished search in a target's work folder."""
SEARCH_FILES: tuple[FileKind, ...] = ("alignment", "hits")
"""The files that a search writes."""


class ComplexStore(Protocol):
    """A store of the alignments of complexes."""

    def write_complex(self, name: str, target: Complex, chain_alignments: Sequence[bytes]) -> None:
        """Store the alignment of a complex, given the A3M files of its chains."""
        ...


@dataclass(frozen=True)
class CacheStore:
    """Alignments in the feature cache: CACHE/alignments/ab/abcdef…/NAME.a3m.gz, by fingerprint.

    Args:
        overwrite: search again even if the alignment exists.
    """

    cache: Path
    request: AlignmentRequest
    overwrite: bool = False

    def path(self, name: str, query: FastaRecord | Complex) -> Path:
        """Return the path of the alignment of a query or a complex."""
        digest = self.request.fingerprint(query)
        return self.cache / "alignments" / digest[:2] / digest / f"{name}.a3m.gz"

    def is_finished(self, name: str, query: FastaRecord | Complex) -> bool:
        """Return True if an earlier run stored this alignment."""
        return not self.overwrite and self.path(name, query).is_file()

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Write the alignment of a query's hits."""
        self.write_file(self.path(name, query), texts.alignment)

    def write_complex(self, name: str, target: Complex, chain_alignments: Sequence[bytes]) -> None:
        """Write the alignment of a complex; see `ComplexStore`."""
        text = io.StringIO()
        write_paired_a3m(text, parse_chains(chain_alignments), self.request.settings.pairing)
        self.write_file(self.path(name, target), text.getvalue())

    def write_file(self, path: Path, text: str) -> None:
        """Write a compressed file of the cache."""
        remove_abandoned_files(path.parent)
        with writing_cache(self.cache), atomic_write(path, "wb") as stream:
            # without a time stamp, so that the same search writes the same bytes; higher levels take three
            # times as long, and save a twentieth
            stream.write(gzip.compress(text.encode(), 1, mtime=0))


@dataclass(frozen=True)
class TargetStore:
    """The alignments and hits of a run's targets, staged in work folders until the targets are finished."""

    targets: Mapping[str, TargetRun]
    request: AlignmentRequest
    overwrite: bool = False

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return True if an earlier run searched this query; its files are then staged."""
        target = self.targets[name]
        files = target.files
        record = self._staged_record(files, query)
        if record is None:
            shutil.rmtree(files.search_folder, ignore_errors=True)
            if self.overwrite or (record := self._published_record(files, query)) is None:
                return False
            for kind in SEARCH_FILES:
                link_file(files.path(kind), files.staged_path(kind))
            _write_record(files, record)
        _add_facts(target, record)
        return True

    def check(self, name: str, query: FastaRecord) -> None:
        """Check that a search is still staged; stage it again if another run has published it meanwhile.

        Raises:
            InputError: another run has replaced it by a search with other settings.
        """
        if not replace(self, overwrite=False).is_finished(name, query):
            raise InputError("another run searches it in the same folder with other settings", name)

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Write the hits, their alignment, and the record of the search."""
        target = self.targets[name]
        files = target.files
        with atomic_write(files.staged_path("hits")) as stream:
            stream.write(texts.table)
        with atomic_write(files.staged_path("alignment")) as stream:
            stream.write(layout_of(files.layout).first_line(len(query.sequence)))
            stream.write(texts.alignment)
        record = {
            "fingerprint": self.request.fingerprint(query),
            "hits": texts.count,
            "capped": self.request.settings.search.max_seqs if texts.capped else None,
            "sha256": {kind: file_sha256(files.staged_path(kind)) for kind in SEARCH_FILES},
        }
        _write_record(files, record)
        _add_facts(target, record)

    def _staged_record(self, files: TargetFiles, query: FastaRecord) -> dict[str, Any] | None:
        """Return the record of a staged search, if it is of this query and its files are unchanged."""
        path = files.search_folder / SEARCH_RECORD
        try:
            record = read_json(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s: damaged, so %s is searched again (%s)", path, files.name, error)
            return None
        return self._validate(record, query, {kind: files.staged_path(kind) for kind in SEARCH_FILES})

    def _published_record(self, files: TargetFiles, query: FastaRecord) -> dict[str, Any] | None:
        """Return the record of a finished target's search, under the same conditions as a staged one."""
        try:
            finished = FinishedTarget.read(files.path("done"))
        except (OSError, ValueError):
            return None
        if finished is None:
            return None
        paths = {kind: files.path(kind) for kind in SEARCH_FILES}
        return self._validate(finished.facts.get("search"), query, paths)

    def _validate(
        self, record: Any, query: FastaRecord, paths: dict[FileKind, Path]
    ) -> dict[str, Any] | None:
        """Return a record if it is of this query, and the files have its hashes; otherwise None."""
        if not isinstance(record, dict) or record.get("fingerprint") != self.request.fingerprint(query):
            return None
        expected = record.get("sha256")
        if not isinstance(expected, dict) or not isinstance(record.get("hits"), int):
            return None
        for kind, path in paths.items():
            try:
                if file_sha256(path) != expected.get(kind):
                    logger.warning("%s: changed since its search, so the search runs again", path)
                    return None
            except OSError:
                return None
        return record


def _add_facts(target: TargetRun, record: dict[str, Any]) -> None:
    """Add the record of a target's search to its facts, and a warning if the number of hits was limited."""
    target.facts["search"] = record
    if record.get("capped"):
        warning = f"the search reached --max-seqs {record['capped']}; further sequences were left out"
        if warning not in target.warnings:
            target.warnings.append(warning)
            logger.warning("%s: %s", target.name, warning)


def _write_record(files: TargetFiles, record: dict[str, Any]) -> None:
    with atomic_write(files.search_folder / SEARCH_RECORD) as stream:
        json.dump(record, stream)
