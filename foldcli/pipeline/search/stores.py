"""Stores of alignments in the feature cache: of queries, and of the chains of a run's targets."""

import contextlib
import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from features.complexes.a3m import parse_chains, write_paired_a3m
from features.complexes.pairing import PairingSettings
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.logs import warn_once
from foldcli.outputs.facts import SearchFacts
from foldcli.outputs.layout import FileKind
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.search.hit_texts import HitTexts
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from msa.base.atomic import atomic_write, writing_cache
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.base.temporary_names import remove_abandoned_files
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord

SEARCH_FILES: tuple[FileKind, ...] = ("alignment", "hits")
"""The files that a target gets from its search."""

# name of all files of chains
_CHAIN = "chain"
_TAB = "\t"
# first bytes of compressed files
_GZIP = b"\x1f\x8b"
# last line of the table of a chain's hits, if there were more
_CAPPED = "# further sequences were left out\n"


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
class StoredHits:
    """The hits of a chain.

    Args:
        table: one line for each, with `m8.DEFAULT_COLUMNS`.
        capped: whether `--max-seqs` left out further ones.
    """

    table: str
    capped: bool


@dataclass(frozen=True)
class ChainStore:
    """The alignments and the tables of hits of chains, in the feature cache.

    Args:
        store: location of the alignments; the tables are next to them. If it overwrites, each chain is
            searched once more.
    """

    store: CacheStore
    _written: set[Path] = field(default_factory=set, repr=False, compare=False)

    @property
    def pairing(self) -> PairingSettings:
        """The method of pairing the alignments of several chains."""
        return self.store.request.settings.pairing

    def is_finished(self, name: str, query: FastaRecord) -> bool:
        """Return True if a chain has been searched; the name does not matter."""
        path = self.store.path(_CHAIN, query)
        if self.store.overwrite and path not in self._written:
            return False
        return path.is_file() and self._table(query).is_file()

    def write(self, name: str, query: FastaRecord, texts: HitTexts) -> None:
        """Write a chain's hits and their alignment; the name appears in messages only."""
        self.store.write_file(self._table(query), texts.table + (_CAPPED if texts.capped else ""))
        self.store.write(_CHAIN, query, texts)
        if self.store.overwrite:
            self._written.add(self.store.path(_CHAIN, query))
        if texts.capped:
            warn_once(f"{name}: {self._capped_warning()}")

    def read(self, query: FastaRecord) -> bytes:
        """Return the A3M file of a chain.

        Raises:
            InputError: the file is damaged.
        """
        return _read(self.store.path(_CHAIN, query))

    def read_hits(self, query: FastaRecord, name: str) -> StoredHits:
        """Return a chain's hits, with another name of the query.

        Raises:
            InputError: the file is damaged.
        """
        lines = _read(self._table(query)).decode().splitlines(keepends=True)
        capped = lines[-1:] == [_CAPPED]
        hits = lines[:-1] if capped else lines
        return StoredHits("".join(f"{name}\t{line.partition(_TAB)[2]}" for line in hits), capped)

    def stage(
        self,
        target: TargetRun,
        chains: Mapping[str, FastaRecord],
        write_alignment: Callable[[IO[str]], object],
    ) -> None:
        """Stage NAME.a3m and NAME.m8 of a target whose chains have been searched, and add its facts.

        Args:
            target: the target.
            chains: its distinct chains, by the names of the query in NAME.m8.
            write_alignment: writes the A3M file.
        """
        files = target.files
        with atomic_write(files.staged_path("alignment")) as stream:
            write_alignment(stream)
        hits = [self.read_hits(chain_query(chain), name) for name, chain in chains.items()]
        with atomic_write(files.staged_path("hits")) as stream:
            stream.writelines(each.table for each in hits)
        target.facts.search = SearchFacts(
            hits=sum(each.table.count("\n") for each in hits),
            capped=self.store.request.settings.search.max_seqs if any(h.capped for h in hits) else None,
            sha256={kind: file_sha256(files.staged_path(kind)) for kind in SEARCH_FILES},
        )
        if any(each.capped for each in hits) and (warning := self._capped_warning()) not in target.warnings:
            target.warnings.append(warning)
            warn_once(f"{target.name}: {warning}")

    def lock(self, query: FastaRecord) -> Path:
        """Return the path of the lock that a run holds while it searches a chain."""
        return self.store.path(_CHAIN, query).with_name(".lock")

    def _table(self, query: FastaRecord) -> Path:
        return self.store.path(_CHAIN, query).with_name(f"{_CHAIN}.m8.gz")

    def _capped_warning(self) -> str:
        limit = self.store.request.settings.search.max_seqs
        return f"the search reached --max-seqs {limit}; further sequences were left out"


def _read(path: Path) -> bytes:
    """Read a compressed file of the cache; a damaged one is removed, so that the next run makes it again."""
    try:
        with path.open("rb") as stream:
            # an emptied or zeroed file would be read as text
            if stream.read(len(_GZIP)) != _GZIP:
                raise InputError("not a gzip file", path)
        return read_bytes(path)
    except FileNotFoundError as error:
        raise InputError("was removed meanwhile; the same command searches again", path) from error
    except InputError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise InputError(
            f"{error.reason}; it was removed, and the same command searches again", path
        ) from error
