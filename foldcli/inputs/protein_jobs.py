"""Queries of proteins made from alignments, and from the jobs of AlphaFold 3 and Boltz."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from features.assembly.job import MoleculeJob
from foldcli.inputs.complexes import Complex, name_chains
from foldcli.inputs.formats.alphafold3 import list_jobs, read_job
from foldcli.inputs.formats.boltz import parse_boltz_job
from foldcli.inputs.formats.job_fields import OtherContent
from foldcli.inputs.formats.json_with_lines import as_mapping, parse_json_with_lines
from foldcli.inputs.formats.tables import make_identifier
from model.chains import chain_names
from msa.alignments import query_columns
from msa.alignments.files import Alignment
from msa.alphabet import GAP, encode
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.profile.family_profile import MAX_MEMBER_IDENTITY, distinct_rows, family_profile
from msa.profile.matrices import BLOSUM62
from msa.profile.pssm import ProfileRecord

# makes a query of an alignment
Profile: TypeAlias = Callable[[Alignment], FastaRecord]


def query_from_alignment(
    alignment: Alignment, comp_bias_corr: bool = True, matrix: str = BLOSUM62
) -> FastaRecord:
    """Convert an alignment to a query: its first row, with a profile of all rows as in an iterated search.

    Args:
        alignment: the alignment; insertions are ignored.
        comp_bias_corr: see `family_profile`.
        matrix: see `family_profile`.

    Returns:
        A ProfileRecord, or a FastaRecord of the first row if no other row differs enough from it.
    """
    header, sequence = alignment.names[0], alignment.query
    rows = encode(alignment.letters.tobytes()).reshape(alignment.letters.shape)
    rows[alignment.letters == query_columns.GAP] = GAP
    distinct = distinct_rows(rows, MAX_MEMBER_IDENTITY)
    if len(distinct) == 1:
        return FastaRecord(header, sequence, location=(alignment.source, None))
    source = f"an alignment of {len(rows):,} rows, {len(distinct):,} of them different"
    profile = family_profile(distinct, comp_bias_corr, matrix)
    return ProfileRecord(header, sequence, profile, source, location=(alignment.source, None))


def alphafold3_queries(data: bytes, path: str, profile: Profile) -> list[FastaRecord | Complex]:
    """Return the queries in a JSON file for AlphaFold 3 or AlphaFold Server, one per job; see `_query`.

    Raises:
        InputError: invalid JSON or an invalid job; names the line.
    """
    jobs = [as_mapping(job, "a job", path) for job in list_jobs(parse_json_with_lines(data, path), path)]
    return [_query(str(job.get("name")), partial(read_job, job, True), profile) for job in jobs]


def boltz_query(data: bytes, path: str, name: str, profile: Profile) -> FastaRecord | Complex:
    """Return the query in a YAML file for Boltz; see `_query`.

    Raises:
        InputError: invalid YAML, an invalid job, or an unreadable alignment; names the line.
    """
    return _query(name, partial(parse_boltz_job, data, path, name, True), profile)


def _query(name: str, read: Callable[[], MoleculeJob], profile: Profile) -> FastaRecord | Complex:
    """Return the query of a job: a Complex for several chains, an UnsupportedRecord for other molecules.

    The paired alignment of a single chain is ignored: it has no partner to pair with.
    """
    header = make_identifier(name)
    try:
        job = read()
        polymers = [each for each in job.polymers() for _ in each.chains]
        if len(polymers) > 1 and any(each.paired is not None for each in polymers):
            raise OtherContent("a paired alignment (pairedMsa)", job.path, job.line)
    except OtherContent as error:
        return UnsupportedRecord(header, "", error.reason, str(error.path), error.line)
    records = {
        polymer.chains: FastaRecord(header, polymer.sequence, location=(job.path, polymer.line or job.line))
        if polymer.alignment is None
        else replace(profile(polymer.alignment), header=header)
        for polymer in polymers
    }
    names = chain_names(len(polymers))
    cyclic = tuple(name for name, each in zip(names, polymers, strict=True) if each.is_cyclic)
    own = tuple(each.templates for each in polymers)
    templates = own if any(each is not None for each in own) else ()
    chains = [records[polymer.chains] for polymer in polymers]
    if len(chains) == 1:
        return replace(chains[0], seeds=job.seeds, cyclic=cyclic, templates=templates)
    return Complex(
        header,
        name_chains(header, chains),
        seeds=job.seeds,
        cyclic=cyclic,
        templates=templates,
        path=job.path or "",
        line=job.line,
    )
