"""Chains of known structure that look like a target's best model: NAME_similar.tsv, NAME_similar.cif."""

from functools import cache
from pathlib import Path

from features.templates.library.mmcif import chains_as_mmcif
from features.templates.structures.search import StructureSearchSettings
from foldcli.logs import logger
from foldcli.outputs.layout import TargetFiles
from foldcli.structure_search.library_search import OpenLibrary, cpu_engine
from foldcli.structure_search.models import read_queries
from msa.alignments.m8 import DEFAULT_COLUMNS, STRUCTURE_COLUMNS, write_m8
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

_COLUMNS = (*DEFAULT_COLUMNS, *STRUCTURE_COLUMNS)
_SETTINGS = StructureSearchSettings(max_seqs=100)

_open_library = cache(OpenLibrary.open)


def find_similar(files: TargetFiles, model: Path, library: Path) -> None:
    """Search with the best model of a target, and write the hits and the best one, moved onto the model.

    A model without a protein chain that can be searched gets a table without hits, and a warning.

    Raises:
        InputError: the library cannot be used.
    """
    opened = _open_library(library)
    try:
        queries = read_queries(model, files.name)
    except InputError as error:
        logger.warning("%s: no similar structures: %s", files.name, error)
        queries = []
    results = list(opened.search(queries, cpu_engine(), _SETTINGS))
    with_hits = (each for each in results if len(each.hits))
    best = min(with_hits, key=lambda each: float(each.hits.evalues[0]), default=None)
    with atomic_write(files.path("similar")) as stream:
        stream.write("\t".join(_COLUMNS) + "\n")
        for each in results:
            query = FastaRecord(each.query.id, each.query.sequence)
            write_m8(stream, query, each.hits, _COLUMNS, each.columns())
    if best is None:
        files.path("similar_structure").unlink(missing_ok=True)
        return
    hit = best.superposed[0]
    with atomic_write(files.path("similar_structure")) as stream:
        stream.write(chains_as_mmcif(hit.chain.id, {"A": hit.moved()}))
