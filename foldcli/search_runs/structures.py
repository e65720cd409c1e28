"""`foldcli search --structure`: models against a library, one table for all."""

import contextlib
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from features.templates.library.chains import TemplateChain
from features.templates.library.mmcif import chains_as_mmcif
from features.templates.library.structure_files import entry_ids, find_structure_files
from features.templates.structures.search import StructureSearchSettings
from foldcli.errors import OptionError, SomeTargetsFailed
from foldcli.inputs.names import file_safe_name
from foldcli.logs import logger
from foldcli.outputs.resumable_table import refuse_existing
from foldcli.pipeline.search.opening import open_search_engine
from foldcli.pipeline.targets.alignment_settings import option_of
from foldcli.structure_search.library_search import ComplexHit, OpenLibrary, StructureHits, join_chains
from foldcli.structure_search.models import read_queries
from msa.alignments.m8 import DEFAULT_COLUMNS, STRUCTURE_COLUMNS, parse_columns, write_m8
from msa.base.atomic import atomic_write, is_stream
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

# the parameters of `foldcli search` that these searches have
_OPTIONS = {
    "queries", "out", "databases", "format_output", "evalue", "max_seqs", "overwrite", "device", "threads",
    "structure", "superposed", "quiet", "verbose", "log_json",
}  # fmt: skip
_COMPLEX_COLUMNS = "query\tentry\tchains\tevalue\tcomplextmscore\n"


def run_structure_search(models: Sequence[str], values: dict[str, Any], given: Collection[str]) -> None:
    """Search with models; see `StructureRun.write`.

    Raises:
        OptionError: an option that this search does not have, or no model.
    """
    if others := set(given) - _OPTIONS:
        raise OptionError(f"--structure cannot be combined with {option_of(min(others))}.")
    if not models or len(values["databases"]) > 1:
        raise OptionError("--structure takes models, and at most one library with --db.")
    columns: tuple[str, ...] = (*DEFAULT_COLUMNS, *STRUCTURE_COLUMNS)
    if values["format_output"] is not None:
        try:
            columns = parse_columns(values["format_output"], STRUCTURE_COLUMNS)
        except ValueError as error:
            raise OptionError(f"--format-output: {error}") from error
    limits = {name: values[name] for name in ("evalue", "max_seqs") if values[name] is not None}
    settings = StructureSearchSettings(**limits, threads=values["threads"])
    library = next(iter(values["databases"]), None)
    StructureRun(
        models, library, values["device"], settings, columns, values["out"], values["superposed"],
        values["overwrite"],
    ).write()  # fmt: skip


@dataclass(frozen=True)
class StructureRun:
    """A search with models.

    Args:
        out: the table; "-" is standard output.
        superposed: folder for the hits, each on its query; None to write none.
        overwrite: replace an existing table.
    """

    models: Sequence[str]
    library: str | None
    device: str
    settings: StructureSearchSettings
    columns: Sequence[str]
    out: str
    superposed: Path | None
    overwrite: bool

    def write(self) -> None:
        """Search with all models and write the results; a model that cannot be read does not stop the others.

        Entries that match several chains of a model are listed in OUT_complexes.tsv.

        Raises:
            OptionError: the table exists.
            InputError: no model can be searched, or the library cannot be used.
            SomeTargetsFailed: some models cannot be read; the others are in the table.
        """
        is_file = self.out != "-" and not is_stream(self.out)
        refuse_existing(self.out, self.overwrite)
        files = find_structure_files(self.models)
        library = OpenLibrary.open(self.library, self.settings.threads)
        engine = open_search_engine(self.device)
        models: dict[str, int] = {}
        failed: list[InputError] = []
        results = library.search(_queries(files, models, failed), engine, self.settings)
        complexes: list[tuple[str, ComplexHit]] = []
        with atomic_write(self.out) if is_file else contextlib.nullcontext(_stream(self.out)) as stream:
            for number, found in groupby(results, lambda each: models[each.query.id]):
                chains = list(found)
                for each in chains:
                    self._write_hits(stream, each)
                complexes += [(entry_ids(files)[number], hit) for hit in join_chains(chains)]
            if len(failed) == len(files):
                raise failed[0]
        if is_file:
            _write_complexes(Path(self.out), complexes)
        if failed:
            raise SomeTargetsFailed(f"{len(failed)} of {len(files)} models could not be searched")

    def _write_hits(self, stream: IO[str], found: StructureHits) -> None:
        query = FastaRecord(found.query.id, found.query.sequence)
        write_m8(stream, query, found.hits, self.columns, found.columns())
        if found.hits.capped:
            logger.warning("%s has more than %d hits (--max-seqs)", found.query.id, self.settings.max_seqs)
        if self.superposed is None:
            return
        folder = self.superposed / file_safe_name(found.query.id)
        folder.mkdir(parents=True, exist_ok=True)
        for earlier in folder.glob("[0-9][0-9][0-9]*_*.cif"):
            earlier.unlink()
        for rank, hit in enumerate(found.superposed, 1):
            name = f"{rank:03}_{file_safe_name(hit.chain.id)}.cif"
            with atomic_write(folder / name) as file:
                file.write(chains_as_mmcif(hit.chain.id, {"A": hit.moved()}))


def _queries(
    files: Sequence[Path], models: dict[str, int], failed: list[InputError]
) -> Iterator[TemplateChain]:
    """Yield the chains of all models; note the model of each chain, and the files that cannot be read."""
    for number, (path, entry) in enumerate(zip(files, entry_ids(files), strict=True)):
        try:
            chains = read_queries(path, entry)
        except InputError as error:
            if len(files) > 1:
                logger.error("%s", error)
            failed.append(error)
            continue
        for chain in chains:
            models[chain.id] = number
            yield chain


def _write_complexes(out: Path, complexes: Sequence[tuple[str, ComplexHit]]) -> None:
    """Write the entries that match several chains of a model; without any, remove an earlier table."""
    path = out.with_name(f"{out.stem}_complexes.tsv")
    if not complexes:
        path.unlink(missing_ok=True)
        return
    with atomic_write(path) as stream:
        stream.write(_COMPLEX_COLUMNS)
        for model, hit in complexes:
            chains = ",".join("=".join(pair) for pair in hit.chains)
            stream.write(f"{model}\t{hit.entry}\t{chains}\t{hit.evalue:.3E}\t{hit.tmscore:.3f}\n")


def _stream(out: str) -> IO[str]:
    return sys.stdout if out == "-" else Path(out).open("w")
