"""Proteins in AlphaFold 3's JSON.

A job with anything but protein chains becomes an UnsupportedRecord, so that the other jobs of its file can
run.
"""

from collections.abc import Iterable, Sequence

from features.assembly.job import OwnTemplate
from foldcli.inputs.complexes import Complex
from foldcli.inputs.formats.job_fields import (
    as_mapping,
    check_keys,
    read_chains,
    read_entities,
    read_flag,
    read_named_alignment,
    read_number,
    read_seeds,
    required_text,
    text_or_file,
)
from foldcli.inputs.formats.json_with_lines import MappingWithLines, parse_json_with_lines
from foldcli.inputs.protein_jobs import ProteinJob
from foldcli.logs import logger
from msa.alignments.files import Alignment, parse_alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

_AF3_VERSIONS = {"alphafold3": (1, 2, 3, 4), "alphafoldserver": (1,)}
_AF3_JOB_KEYS = (
    "name", "modelSeeds", "sequences", "bondedAtomPairs", "userCCD", "userCCDPath", "dialect", "version",
)  # fmt: skip
_AF3_PROTEIN_KINDS = ("protein", "proteinChain")
_AF3_UNSUPPORTED_KINDS = {
    "rna": "RNA", "rnaSequence": "RNA", "dna": "DNA", "dnaSequence": "DNA",
    "ligand": "a ligand", "ion": "an ion",
}  # fmt: skip
_AF3_PROTEIN_KEYS = (
    "id", "sequence", "modifications", "description", "unpairedMsa", "unpairedMsaPath", "pairedMsa",
    "pairedMsaPath", "templates", "count", "glycans", "useStructureTemplate", "maxTemplateDate",
)  # fmt: skip
_AF3_TEMPLATE_KEYS = ("mmcif", "mmcifPath", "queryIndices", "templateIndices")
# of two such keys, one may have a value
_AF3_ALTERNATIVES = (("unpairedMsa", "unpairedMsaPath"), ("pairedMsa", "pairedMsaPath"))
_MAX_COPIES = 10_000


def parse_alphafold3(data: bytes, path: str) -> list[FastaRecord | Complex]:
    """Parse a JSON file for AlphaFold 3 (one job) or for AlphaFold Server (a list of jobs).

    The paired alignment of a single chain is ignored: it has no partner to pair with.

    Returns:
        One query per job: an AlignedRecord for a chain with an alignment, a Complex for several chains, an
        UnsupportedRecord if the job contains anything else.

    Raises:
        InputError: invalid JSON or an invalid job; names the line.
    """
    content = parse_json_with_lines(data, path)
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise InputError("no job in the list", path, 1)
    return [_alphafold3_job(as_mapping(job, "a job", path, 1), path).build_query() for job in jobs]


def _alphafold3_job(content: MappingWithLines, path: str) -> "ProteinJob":
    check_keys(content, _AF3_JOB_KEYS, path)
    check_alphafold3_version(content, path)
    _check_alternatives(content, (("userCCD", "userCCDPath"),), path)
    job = ProteinJob(required_text(content, "name", path), path, content.line)
    job.seeds = read_seeds(content, "modelSeeds", path)
    for kind, entity in read_entities(content, path):
        _check_alternatives(entity, _AF3_ALTERNATIVES, path)
        job.add_ids(entity)
        if kind in _AF3_PROTEIN_KINDS:
            _add_alphafold3_protein(job, entity)
        elif kind in _AF3_UNSUPPORTED_KINDS:
            job.add_unsupported(_AF3_UNSUPPORTED_KINDS[kind])
        else:
            raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    if content.get("bondedAtomPairs"):
        job.add_unsupported("bonds (bondedAtomPairs)")
    return job


def check_alphafold3_version(content: MappingWithLines, path: str) -> None:
    """Raise InputError for an unknown dialect of AlphaFold 3's format, or an unknown version of it."""
    dialect = content.get("dialect", "alphafold3")
    if not isinstance(dialect, str) or dialect not in _AF3_VERSIONS:
        reason = f"unknown dialect {dialect!r:.40}: expected {' or '.join(_AF3_VERSIONS)}"
        raise InputError(reason, path, content.line_of("dialect"))
    version = content.get("version", 1)
    if version not in _AF3_VERSIONS[dialect]:
        known = ", ".join(map(str, _AF3_VERSIONS[dialect]))
        reason = f"version {version!r:.20} of {dialect}: versions {known} are known"
        raise InputError(reason, path, content.line_of("version"))


def _add_alphafold3_protein(job: "ProteinJob", entity: MappingWithLines) -> None:
    check_keys(entity, _AF3_PROTEIN_KEYS, job.path)
    for key, description in (
        ("modifications", "modified residues"),
        ("glycans", "glycans"),
    ):
        if entity.get(key):
            job.add_unsupported(description)
    has_paired_alignment = bool(entity.get("pairedMsa") or entity.get("pairedMsaPath"))
    copies = _alphafold3_copies(entity, job.path)
    sequence = job.add_chain(entity, copies, _alphafold3_alignment(job, entity), has_paired_alignment)
    templates = alphafold3_templates(entity, sequence, job.path)
    job.templates[len(job.chains) - copies :] = [templates] * copies


def _alphafold3_copies(entity: MappingWithLines, path: str) -> int:
    """Return the number of copies of a chain: AlphaFold Server has a count, AlphaFold 3 a list of ids."""
    if entity.get("id") is not None:
        chains = read_chains(entity, "id", path)
        check_count(entity, chains, path)
        return len(chains)
    count = entity.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MAX_COPIES:
        reason = f"count is {count!r:.40}: expected a number from 1 to {_MAX_COPIES:,}"
        raise InputError(reason, path, entity.line_of("count"))
    return count


def check_count(entity: MappingWithLines, chains: Sequence[str], path: str) -> None:
    """Raise InputError if the count of a molecule is not the number of its chain ids."""
    if entity.get("count", len(chains)) != len(chains):
        reason = f"count is {entity['count']!r:.40}, and 'id' has {len(chains)}"
        raise InputError(reason, path, entity.line_of("count"))


def _alphafold3_alignment(job: "ProteinJob", entity: MappingWithLines) -> Alignment | None:
    """Return the chain's alignment, or None; an empty alignment is recorded as unsupported content."""
    for key in ("unpairedMsa", "unpairedMsaPath"):
        value = entity.get(key)
        if value is None:
            continue
        line = entity.line_of(key)
        if not isinstance(value, str):
            raise InputError(f"{key!r} is not text", job.path, line)
        if not value.strip():
            job.add_unsupported(f"an empty {key}, which means no alignment (use `foldcli predict`)")
        elif key == "unpairedMsaPath":
            return read_named_alignment(job.path, value, line)
        else:
            try:
                return parse_alignment(value.encode())
            except InputError as error:
                raise InputError(f"{key}: {error.reason}", job.path, line) from None
    return None


def alphafold3_templates(
    entity: MappingWithLines, sequence: str, path: str
) -> tuple[OwnTemplate, ...] | None:
    """Return the templates of a chain; None if the file leaves the search to the program."""
    items = entity.get("templates")
    line = entity.line_of("templates")
    if entity.get("maxTemplateDate") is not None:
        logger.warning("%s:%d: maxTemplateDate is ignored", path, entity.line_of("maxTemplateDate"))
    if items is None:
        return None if read_flag(entity, "useStructureTemplate", path, default=True) else ()
    if not isinstance(items, list):
        raise InputError("'templates' is not a list", path, line)
    result = []
    for item in items:
        mapping = as_mapping(item, "a template", path, line)
        check_keys(mapping, _AF3_TEMPLATE_KEYS, path)
        text = text_or_file(mapping, "mmcif", "mmcifPath", path)
        query = _positions(mapping, "queryIndices", path)
        template = _positions(mapping, "templateIndices", path)
        if len(query) != len(template):
            reason = f"{len(query):,} queryIndices and {len(template):,} templateIndices"
            raise InputError(reason, path, mapping.line_of("templateIndices"))
        if any(position >= len(sequence) for position in query):
            reason = f"queryIndices go up to {max(query):,}: the last residue is {len(sequence) - 1:,}"
            raise InputError(reason, path, mapping.line_of("queryIndices"))
        result.append(OwnTemplate(text, query, template, path=path, line=mapping.line))
    return tuple(result)


def _positions(mapping: MappingWithLines, key: str, path: str) -> tuple[int, ...]:
    """Return a list of 0-based positions; raise InputError for anything else."""
    values = mapping.get(key)
    line = mapping.line_of(key)
    if not isinstance(values, list):
        raise InputError(f"{key!r} is not a list of positions", path, line)
    positions = tuple(read_number(value, key, path, line) for value in values)
    if any(position < 0 for position in positions):
        raise InputError(f"{key!r} has a negative position", path, line)
    return positions


def _check_alternatives(
    mapping: MappingWithLines, alternatives: Iterable[tuple[str, str]], path: str
) -> None:
    """Raise InputError if two keys have a value of which AlphaFold 3 takes one; names the line."""
    for first, second in alternatives:
        if mapping.get(first) and mapping.get(second):
            reason = f"both {first!r} and {second!r}: only one of them may be set"
            raise InputError(reason, path, mapping.line_of(second))
