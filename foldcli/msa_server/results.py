"""The files of a ticket's results, as ColabFold's server sends them."""

import io
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import IO, Any

from features.complexes.a3m import pair_a3m, parse_chains, write_job_a3m
from features.complexes.pairing import PairingSettings
from features.templates.search import alignment_query, search_templates
from foldcli.exports.templates import template_files, write_template_hits
from foldcli.inputs.complexes import chain_query
from foldcli.msa_server.tickets import Ticket
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.search.stores import ChainStore
from msa.alignments.complex_a3m import NO_ROW, A3mRow
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

# higher levels take longer than the search
_COMPRESSION = 1


class ResultFiles:
    """A writer of results. Its methods may be called from any thread.

    Args:
        templates: the library that is searched for templates; None for none.
    """

    def __init__(self, templates: TemplateStage | None) -> None:
        self._templates = templates
        # two searches of the library at once would share its engine
        self._template_lock = Lock()

    def identity(self) -> dict[str, Any] | None:
        """Return everything that results depend on, in addition to the alignments."""
        return None if self._templates is None else self._templates.identity()

    def write(self, stream: IO[bytes], ticket: Ticket, store: ChainStore) -> None:
        """Write the results of a ticket whose sequences have been searched, as tar.gz."""
        files = self._pair_files if ticket.job.kind == "pair" else self._alignment_files
        _write_archive(files(ticket, store), stream)

    def template_archive(self, names: Sequence[str]) -> bytes:
        """Return the chains of the structure library with these ids, as tar.gz.

        Raises:
            InputError: there is no library, or it has none of them.
        """
        library = None if self._templates is None else self._templates.library
        if library is None or not any(library.find(name) is not None for name in names):
            raise InputError("no such template")
        archive = io.BytesIO()
        _write_archive(((name, [text]) for name, text in template_files(library, names)), archive)
        return archive.getvalue()

    def _alignment_files(self, ticket: Ticket, store: ChainStore) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield the names of the files for single sequences with their parts."""
        yield "uniref.a3m", (_block(record, _alignment(store, record)) for record in ticket.records)
        if ticket.job.with_all_databases:
            # the rows of all databases are in the first file, which clients join with this one
            yield (
                "bfd.mgnify30.metaeuk30.smag30.a3m",
                (f">{record.header}\n{record.sequence}\n\0" for record in ticket.records),
            )
        yield "pdb70.m8", (self._template_table(record, store) for record in ticket.records)

    def _template_table(self, record: FastaRecord, store: ChainStore) -> str:
        """Return the table of a sequence's templates; empty without a library."""
        stage, table = self._templates, io.StringIO()
        if stage is not None and stage.library is not None:
            query = alignment_query(parse_alignment(_alignment(store, record)))
            with self._template_lock:
                hits = search_templates(query, stage.library, stage.settings)
            write_template_hits(table, record.id, hits)
        # clients split the ids of templates at their only underscore
        lines = table.getvalue().splitlines(keepends=True)
        return "".join(line for line in lines if line.split("\t")[1].count("_") == 1)

    def _pair_files(self, ticket: Ticket, store: ChainStore) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield the name of the file with the paired rows of all sequences, and its parts."""
        distinct = list(dict.fromkeys(record.sequence for record in ticket.records))
        texts = [_alignment(store, FastaRecord("", sequence)) for sequence in distinct]
        settings = PairingSettings(strategy=ticket.job.pair_strategy)
        pairs, _ = pair_a3m(parse_chains(texts), [1] * len(texts), settings)

        def block(record: FastaRecord) -> str:
            number = distinct.index(record.sequence)
            no_row = A3mRow(NO_ROW, "-" * len(record.sequence))
            rows = [A3mRow(record.header, record.sequence), *(pair[number] or no_row for pair in pairs)]
            return "".join(f">{row.header}\n{row.text}\n" for row in rows) + "\0"

        yield "pair.a3m", map(block, ticket.records)


def _alignment(store: ChainStore, record: FastaRecord) -> bytes:
    """Return the alignment of a sequence, A3M."""
    return store.read(chain_query(record))


def _block(record: FastaRecord, alignment: bytes) -> str:
    """Return the alignment of a sequence under its own name, with the end that clients look for."""
    text = io.StringIO()
    write_job_a3m(text, record.header, [alignment])
    return text.getvalue() + "\0"


def _write_archive(files: Iterable[tuple[str, Iterable[str]]], stream: IO[bytes]) -> None:
    """Write files, made part by part, as tar.gz."""
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=_COMPRESSION) as archive:
        for name, parts in files:
            with tempfile.SpooledTemporaryFile(max_size=1 << 24) as file:
                for part in parts:
                    file.write(part.encode())
                information = tarfile.TarInfo(name)
                information.size, information.mtime = file.tell(), int(time.time())
                file.seek(0)
                archive.addfile(information, file)
