"""Jobs with any molecules, read from files whose format is recognised by content.

The formats are FASTA of proteins, as `foldcli fold` reads it, FASTA that names kinds of molecules (Boltz,
Chai, ColabFold), ColabFold's table, alignments of proteins, AlphaFold 3's JSON, OpenFold3's JSON and Boltz's
YAML.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from features.assembly.job import MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from foldcli.inputs.complexes import Complex
from foldcli.inputs.failures import Failures
from foldcli.inputs.formats.alphafold3 import alphafold3_jobs
from foldcli.inputs.formats.boltz import parse_boltz_job
from foldcli.inputs.formats.fasta import names_molecules, parse_fasta_jobs, parse_table_jobs
from foldcli.inputs.formats.job_fields import Refuse, raise_error
from foldcli.inputs.formats.json_with_lines import MappingWithLines, parse_json_with_lines
from foldcli.inputs.formats.openfold3 import openfold3_jobs
from foldcli.inputs.formats.tables import make_identifier, parse_table, table_rows
from foldcli.inputs.names import FASTA_SUFFIXES, list_files, list_query_files
from foldcli.inputs.queries import (
    Query,
    distinct_ids_and_names,
    find_alignment,
    job_format,
    name_of_file,
    read_queries,
    read_sequences,
    split_complexes,
    warn_queries,
)
from foldcli.logs import logger
from model.chains import chain_names
from msa.alignments.complex_a3m import ComplexAlignment, is_complex_a3m, parse_complex_a3m
from msa.alignments.files import Alignment, check_protein, without_separator
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord, UnsupportedRecord, first_word
from msa.mmseqs.files import is_mmseqs
from msa.profile.profile_archive import is_profile_archive
from msa.profile.pssm import ProfileRecord

_JOB_SUFFIXES = (*FASTA_SUFFIXES, ".json", ".yaml", ".yml")
_NO_PROFILES = "a saved profile is no job: give a sequence or an alignment"
_NAME_MOLECULE = (
    "name its kind in the header (>A|rna, >A|dna, >A|ccd, >A|smiles) or before the sequence (rna|ACGU)"
)
# JSON files that foldcli and other programs write next to their results
_RESULT = re.compile(r"\.(?:done|a3m|sto)\.json$|_(?:scores|summary_confidences|confidences)[^/]*\.json$")


def read_jobs(inputs: Sequence[str], failures: Failures) -> list[tuple[str, MoleculeJob]]:
    """Read the jobs of files and folders, and return pairs of name and job.

    Names are safe for files and distinct. A job with the name and the molecules of an earlier one is left
    out; if only the name is that of an earlier one, _2, _3 and so on is appended.

    Args:
        inputs: files of any format above, `-` for standard input, and folders; see `list_job_files`.
        failures: receives one error for each file and each job that cannot be read; the others are returned.

    Raises:
        InputError: a folder has no job file.
    """
    jobs: list[MoleculeJob] = []
    for path in list_job_files(inputs):
        try:
            jobs += read_job_file(path, partial(failures.add, path))
        except (InputError, OSError) as error:
            failures.add(path, error)
    return name_jobs(jobs)


def list_job_files(inputs: Sequence[str]) -> Iterator[str]:
    """Yield the job files; for a folder, its FASTA, JSON and YAML files, else its other query files.

    Raises:
        InputError: a folder has no such file.
    """
    for path in inputs:
        try:
            files = [file for file in list_files([path], _JOB_SUFFIXES) if not _RESULT.search(file)]
        except InputError:
            files = []
        yield from files or list_query_files([path])


def read_job_file(path: str | os.PathLike[str], refuse: Refuse) -> list[MoleculeJob]:
    """Read the jobs in a file; compression is recognised by content.

    Args:
        path: the file; `-` is standard input.
        refuse: called with the error of each job that cannot be read.

    Raises:
        InputError: the file cannot be read as a whole; names file, line and column where known.
    """
    name = os.fspath(path)
    if name != "-" and is_mmseqs(path):
        return _jobs_of_queries(read_queries(path), name, refuse)
    data = read_bytes(path)
    if is_profile_archive(data):
        raise InputError(_NO_PROFILES, name)
    data = without_separator(data, name)
    text = data.lstrip()
    file_format = job_format(text, name)
    if file_format == "table":
        rows = table_rows(data, name)
        if any("|" in row["sequence"] for _, row in rows):
            return parse_table_jobs(rows, name, refuse)
        return _jobs_of_queries(split_complexes(parse_table(data, name)), name, refuse)
    if file_format is not None and not text:
        raise InputError("empty file", name)
    if file_format == "json":
        content = parse_json_with_lines(data, name)
        is_openfold3 = isinstance(content, MappingWithLines) and "queries" in content
        return (openfold3_jobs if is_openfold3 else alphafold3_jobs)(content, name, refuse)
    if file_format == "yaml":
        return [parse_boltz_job(data, name, name_of_file(name))]
    if names_molecules(text):
        return parse_fasta_jobs(data, name, name_of_file(name), refuse)
    if text.startswith(b"#") and is_complex_a3m(data, name):
        return [_job_of_complex(parse_complex_a3m(data, name))]
    if (alignment := find_alignment(data, name)) is not None:
        return [_job_of_alignment(alignment)]
    return _jobs_of_queries(read_sequences(data, name), name, refuse)


def name_jobs(jobs: Sequence[MoleculeJob]) -> list[tuple[str, MoleculeJob]]:
    """Return pairs of file name and job, each job renamed to a distinct word; see `read_jobs`."""
    distinct: list[MoleculeJob] = []
    seen: set[tuple[object, ...]] = set()
    repeated = []
    for job in jobs:
        content = _content(job)
        if content in seen:
            repeated.append(job.name)
            continue
        seen.add(content)
        distinct.append(job)
    warn_queries("left out, because an earlier query has the same id and molecules", repeated)
    ids, names = distinct_ids_and_names([make_identifier(job.name) for job in distinct])
    return [(name, replace(job, name=new)) for name, new, job in zip(names, ids, distinct, strict=True)]


def _content(job: MoleculeJob) -> tuple[object, ...]:
    """Return all that distinguishes a job from others of its name, but not its place in a file."""
    entities = tuple(
        (
            entity.kind, entity.sequence, len(entity.chains), entity.modifications, entity.is_cyclic,
            entity.templates, entity.alignment, entity.paired,
        )
        if isinstance(entity, Polymer)
        else (entity.codes, entity.smiles, len(entity.chains))
        for entity in job.entities
    )  # fmt: skip
    bonds = tuple((bond.first, bond.second) for bond in job.bonds)
    return job.name, entities, bonds, job.seeds, job.components


def _jobs_of_queries(queries: Sequence[Query], path: str, refuse: Refuse) -> list[MoleculeJob]:
    """Return the jobs of sequences and complexes; refuse records that are no proteins."""
    jobs = []
    for query in queries:
        if isinstance(query, UnsupportedRecord):
            error = query.error()
            reason = error.reason.removesuffix(f": {query.supported}")
            refuse(InputError(f"{reason}: {_NAME_MOLECULE}", error.path, error.line))
        elif isinstance(query, ProfileRecord):
            refuse(InputError(_NO_PROFILES, path))
        else:
            jobs.append(job_of_query(query, path))
    warn_queries("with stop codons ('*') read as X", [query.id for query in queries if query.stop_codons])
    return jobs


def job_of_query(query: FastaRecord | Complex, path: str) -> MoleculeJob:
    """Return the job of a protein or a complex of proteins; equal chains are copies."""
    chains = [query.sequence] if isinstance(query, FastaRecord) else [c.sequence for c in query.chains]
    templates = query.templates or (None,) * len(chains)
    if query.cyclic:
        raise InputError(f"chain {query.cyclic[0]} is cyclic: predict the job itself, not in a screen", path)
    line = query.line if isinstance(query, Complex) else None
    entities = _copies(tuple(zip(chains, templates, strict=True)))
    return MoleculeJob(query.id or "query", entities, seeds=query.seeds, path=path, line=line)


def _copies(chains: Sequence[tuple[str, tuple[Any, ...] | None]]) -> tuple[Polymer, ...]:
    """Return one polymer for each distinct protein, given sequence and templates of each chain."""
    names: dict[tuple[str, tuple[Any, ...] | None], list[str]] = {}
    for name, chain in zip(chain_names(len(chains)), chains, strict=True):
        names.setdefault(chain, []).append(name)
    return tuple(
        Polymer(MoleculeKind.PROTEIN, sequence, tuple(ids), templates=templates)
        for (sequence, templates), ids in names.items()
    )


def _job_of_alignment(alignment: Alignment) -> MoleculeJob:
    """Return the job of the query of an alignment, with the alignment."""
    check_protein(alignment.names[0], alignment.query, alignment.source)
    polymer = Polymer(MoleculeKind.PROTEIN, alignment.query, ("A",), alignment=alignment)
    return MoleculeJob(first_word(alignment.names[0]) or "query", (polymer,), path=alignment.source)


def _job_of_complex(alignment: ComplexAlignment) -> MoleculeJob:
    """Return the job of ColabFold's alignment of a complex."""
    order = alignment.chain_order
    names = chain_names(len(order))
    has_pairs = len(alignment.queries) > 1 and len(alignment.paired[0]) > 1
    polymers = tuple(
        Polymer(
            MoleculeKind.PROTEIN,
            sequence,
            tuple(name for name, entity in zip(names, order, strict=True) if entity == number),
            alignment=alignment.unpaired[number],
            paired=alignment.paired[number] if has_pairs else None,
        )
        for number, sequence in enumerate(alignment.queries)
    )
    return MoleculeJob(name_of_file(alignment.source or "-"), polymers, path=alignment.source)


@dataclass(frozen=True)
class JobSources:
    """Files of jobs, whose proteins are searched; see `foldcli.inputs.queries.QueryReaders`."""

    inputs: Sequence[str]

    def readers(self) -> Iterator[tuple[str, Callable[[], Sequence[Query]]]]:
        """Yield each file with a function that reads its queries, and with one for each error of a job.

        Raises:
            InputError: a folder has no job file.
        """
        for path in list_job_files(self.inputs):
            errors: list[InputError] = []
            yield path, partial(_read_complexes, path, errors)
            for error in errors:
                yield path, partial(raise_error, error)


def _read_complexes(path: str, errors: list[InputError]) -> list[Complex]:
    """Return the searched proteins of each job in a file, copies included; append the errors of jobs."""
    complexes = []
    for job in read_job_file(path, errors.append):
        name = make_identifier(job.name)
        chains = tuple(
            FastaRecord(f"{name}_{polymer.chains[0]}", polymer.sequence)
            for polymer in job.proteins_to_search()
            for _ in polymer.chains
        )
        if chains:
            complexes.append(Complex(name, chains, path=job.path or "", line=job.line))
        else:
            logger.info("%s: no protein without an alignment, so nothing to search", name)
    return complexes
