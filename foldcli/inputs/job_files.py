"""Job files of other programs: AlphaFold 3's JSON and Boltz's YAML.

A job with anything but protein chains becomes an UnsupportedRecord, so that the other jobs of its file can
run.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from features.assembly.job import OwnTemplate
from foldcli.inputs.complexes import Complex, name_chains
from foldcli.inputs.json_with_lines import (
    MappingWithLines,
    as_mapping,
    check_keys,
    find_named_file,
    find_unsupported,
    parse_json_with_lines,
    parse_yaml_with_lines,
    read_chains,
    read_flag,
    read_number,
    required_text,
    text_or_file,
)
from foldcli.inputs.tables import make_identifier
from foldcli.logs import logger
from model.chains import chain_names
from msa.alignments.files import Alignment, parse_alignment, read_alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord, clean_sequence
from msa.io.molecules import other_molecule

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
# the largest seeds that AlphaFold 3 takes
_MAX_SEED = 2**32
_SEED = re.compile("[0-9]{1,10}")

_BOLTZ_UNSUPPORTED_KINDS = {"rna": "RNA", "dna": "DNA", "ligand": "a ligand"}
# sections of a job that are not supported unless empty
_BOLTZ_UNSUPPORTED_SECTIONS = {"constraints": "constraints", "properties": "properties"}
_BOLTZ_TEMPLATE_KEYS = ("cif", "pdb", "chain_id", "template_id", "force", "threshold")
_BOLTZ_PROTEIN_KEYS = ("id", "sequence", "msa", "modifications", "cyclic")


@dataclass(frozen=True)
class AlignedRecord(FastaRecord):
    """A chain with its alignment."""

    alignment: Alignment = field(repr=False)


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


def _alphafold3_job(content: MappingWithLines, path: str) -> "_JobBuilder":
    check_keys(content, _AF3_JOB_KEYS, path)
    check_alphafold3_version(content, path)
    _check_alternatives(content, (("userCCD", "userCCDPath"),), path)
    job = _JobBuilder(required_text(content, "name", path), path, content.line)
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


def read_seeds(content: MappingWithLines, key: str, path: str) -> tuple[int, ...]:
    """Return the seeds of a job; AlphaFold Server writes them as text, and leaves the list empty.

    Raises:
        InputError: they are not a list of numbers.
    """
    values = content.get(key)
    seeds = []
    for value in [] if values is None else values if isinstance(values, list) else [values]:
        if isinstance(value, str) and _SEED.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_SEED:
            reason = f"{key} has {value!r:.40}: expected numbers from 0 to {_MAX_SEED - 1:,}"
            raise InputError(reason, path, content.line_of(key))
        seeds.append(value)
    return tuple(seeds)


def _add_alphafold3_protein(job: "_JobBuilder", entity: MappingWithLines) -> None:
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


def _alphafold3_alignment(job: "_JobBuilder", entity: MappingWithLines) -> Alignment | None:
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


def parse_boltz(data: bytes, path: str, name: str) -> list[FastaRecord | Complex]:
    """Parse a YAML file for Boltz, which has one job.

    Args:
        data: decompressed YAML.
        path: file name for errors.
        name: name of the query, because the file has none.

    Returns:
        One query: an AlignedRecord for a chain with an alignment, a Complex for several chains, an
        UnsupportedRecord if the job contains anything else.

    Raises:
        InputError: invalid YAML, an invalid job, or an unreadable alignment; names the line.
    """
    content = as_mapping(parse_yaml_with_lines(data, path), "the file", path, 1)
    check_keys(content, ("version", "sequences", "templates", *_BOLTZ_UNSUPPORTED_SECTIONS), path)
    check_boltz_version(content, path)
    job = _JobBuilder(name, path, content.line)
    for kind, entity in read_entities(content, path):
        job.add_ids(entity)
        if kind == "protein":
            _add_boltz_protein(job, entity)
        elif kind in _BOLTZ_UNSUPPORTED_KINDS:
            job.add_unsupported(_BOLTZ_UNSUPPORTED_KINDS[kind])
        else:
            raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    for key, description in _BOLTZ_UNSUPPORTED_SECTIONS.items():
        if items := content.get(key):
            kinds = dict.fromkeys(kind for item in items if isinstance(item, dict) for kind in item)
            job.add_unsupported(f"{description} ({', '.join(kinds)})" if kinds else description)
    for first, templates in boltz_templates(content, job.proteins, path).items():
        for number, name in enumerate(job.first_chains):
            if name == first:
                job.templates[number] = templates
    return [job.build_query()]


def check_boltz_version(content: MappingWithLines, path: str) -> None:
    """Raise InputError for another version of Boltz's format than 1, which a file need not name."""
    if content.get("version") not in (None, "1"):
        reason = f"version {content['version']!r:.20}: only version 1 is known"
        raise InputError(reason, path, content.line_of("version"))


def _add_boltz_protein(job: "_JobBuilder", entity: MappingWithLines) -> None:
    check_keys(entity, _BOLTZ_PROTEIN_KEYS, job.path)
    identifiers = entity.get("id")
    if entity.get("modifications"):
        job.add_unsupported("modified residues")
    copies = len(identifiers) if isinstance(identifiers, list) else 1
    if read_flag(entity, "cyclic", job.path):
        first = len(job.chains)
        job.cyclic.update(range(first, first + copies))
    job.add_chain(entity, copies, _boltz_alignment(job, entity))


def _boltz_alignment(job: "_JobBuilder", entity: MappingWithLines) -> Alignment | None:
    """Return the chain's alignment, or None; formats other than A3M are recorded as unsupported content."""
    if entity.get("msa") is None:
        return None
    file, line = required_text(entity, "msa", job.path), entity.line_of("msa")
    if file in ("empty", "0"):
        job.add_unsupported(f"msa: {file}, which means no alignment (use `foldcli predict`)")
    elif file.lower().endswith(".csv"):
        job.add_unsupported("an alignment as a table (.csv) instead of A3M")
    else:
        return read_named_alignment(job.path, file, line)
    return None


def boltz_templates(
    content: MappingWithLines, proteins: Mapping[str, tuple[str, str]], path: str
) -> dict[str, tuple[OwnTemplate, ...]]:
    """Return the templates that a file for Boltz gives to its proteins, by the first chain of each.

    A template without `chain_id` is given to every protein, as by Boltz; without `template_id`, the chain of
    the file is used whose alignment scores best.
    """
    items, line = content.get("templates") or [], content.line_of("templates")
    if not isinstance(items, list):
        raise InputError("'templates' is not a list", path, line)
    if items:
        # imports gemmi, which other jobs do not need
        from features.templates.own_templates import template_of_file
    templates: dict[str, tuple[OwnTemplate, ...]] = {}
    for item in items:
        mapping = as_mapping(item, "a template", path, line)
        name = required_text(_checked_template(mapping, path), "pdb" if "pdb" in mapping else "cif", path)
        file = find_named_file(path, name, "template file", mapping.line)
        for first, sequence, chain in _templated_chains(mapping, proteins, path):
            template = template_of_file(file, chain, sequence, path, mapping.line)
            templates[first] = (*templates.get(first, ()), template)
    return templates


def _checked_template(mapping: MappingWithLines, path: str) -> MappingWithLines:
    """Return a template, after checking that it asks for nothing that is not supported."""
    check_keys(mapping, _BOLTZ_TEMPLATE_KEYS, path)
    if "pdb" in mapping and "cif" in mapping:
        raise InputError("both 'cif' and 'pdb' are given", path, mapping.line_of("pdb"))
    find_unsupported(mapping, {"threshold": "templates enforced by a potential"}, path)
    if read_flag(mapping, "force", path):
        raise InputError("templates enforced by a potential (force) are not supported", path, mapping.line)
    return mapping


def _templated_chains(
    mapping: MappingWithLines, proteins: Mapping[str, tuple[str, str]], path: str
) -> list[tuple[str, str, str | None]]:
    """Return first chain and sequence of each protein that a template is given to, and the template's chain.

    The template's chain is None for any; see `boltz_templates`.
    """
    requested = read_chains(mapping, "chain_id", path) if mapping.get("chain_id") else ()
    ids = read_chains(mapping, "template_id", path) if mapping.get("template_id") else ()
    if unknown := [name for name in requested if name not in proteins]:
        raise InputError(f"template of {unknown[0]!r}: no such protein", path, mapping.line)
    if ids and len(ids) != len(requested):
        reason = f"{len(requested)} chain_id and {len(ids)} template_id"
        raise InputError(reason, path, mapping.line_of("template_id"))
    if not requested:
        return [(*protein, None) for protein in dict.fromkeys(proteins.values())]
    chains = dict(zip((proteins[name] for name in requested), ids or [None] * len(requested), strict=True))
    return [(*protein, chain) for protein, chain in chains.items()]


@dataclass
class _JobBuilder:
    """The content of a job, collected while its file is read.

    Args:
        name: id of the query; whitespace becomes `_`.
        line: 1-based line where it begins.
        chains: its protein chains; copies are repeated.
        templates: the templates of each chain; None to search for some.
        first_chains: id of the first copy of each chain.
        proteins: id of the first copy, and the sequence, by the ids of protein chains.
        has_paired_alignment: whether a chain has a paired alignment.
        unsupported: descriptions of unsupported content, such as "a ligand".
    """

    name: str
    path: str
    line: int
    chains: list[FastaRecord] = field(default_factory=list)
    templates: list[tuple[OwnTemplate, ...] | None] = field(default_factory=list)
    first_chains: list[str] = field(default_factory=list)
    proteins: dict[str, tuple[str, str]] = field(default_factory=dict)
    has_paired_alignment: bool = False
    stop_codons: int = 0
    seeds: tuple[int, ...] = ()
    cyclic: set[int] = field(default_factory=set)
    unsupported: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def add_ids(self, entity: MappingWithLines) -> None:
        """Add the ids of an entity."""
        ids = entity.get("id")
        for name in ids if isinstance(ids, list) else [ids]:
            if not isinstance(name, str):
                continue
            if name in self.ids:
                raise InputError(f"two chains have the id {name!r:.40}", self.path, entity.line_of("id"))
            self.ids.add(name)

    def add_unsupported(self, description: str) -> None:
        """Add unsupported content, unless it has been added before."""
        if description not in self.unsupported:
            self.unsupported.append(description)

    def add_chain(
        self,
        entity: MappingWithLines,
        copies: int,
        alignment: Alignment | None,
        has_paired_alignment: bool = False,
    ) -> str:
        """Add the copies of a protein chain, and return its sequence."""
        text = required_text(entity, "sequence", self.path)
        line = entity.line_of("sequence")
        sequence, stop_codons = clean_sequence(text, self.path, line)
        if ":" in sequence:
            self.add_unsupported("a sequence of several chains (':')")
        elif (molecule := other_molecule("", sequence)) is not None:
            self.add_unsupported(f"{molecule} as protein")
        elif alignment is not None and alignment.query != sequence:
            reason = f"{self.header!r}: the first row of its alignment differs from its sequence"
            raise InputError(reason, self.path, line)
        record = FastaRecord(self.header, sequence, stop_codons=stop_codons)
        if alignment is not None:
            record = AlignedRecord(self.header, sequence, alignment, stop_codons=stop_codons)
        self.chains += [record] * copies
        self.templates += [None] * copies
        ids = entity.get("id")
        names = [str(name) for name in (ids if isinstance(ids, list) else [ids or f"#{len(self.chains)}"])]
        self.first_chains += names[:1] * copies
        self.proteins |= dict.fromkeys(names, (names[0], sequence)) if names else {}
        self.stop_codons += stop_codons
        self.has_paired_alignment |= has_paired_alignment
        return sequence

    @property
    def header(self) -> str:
        """The job's name as one word."""
        return make_identifier(self.name)

    def build_query(self) -> FastaRecord | Complex:
        """Return the job's query, or an UnsupportedRecord that describes its unsupported content."""
        unsupported = [] if self.chains else ["no protein chain"]
        unsupported += self.unsupported
        if self.has_paired_alignment and len(self.chains) > 1:
            unsupported.append("a paired alignment (pairedMsa)")
        if unsupported:
            sequence = ":".join(chain.sequence for chain in dict.fromkeys(self.chains))
            return UnsupportedRecord(self.header, sequence, ", ".join(unsupported), self.path, self.line)
        names = chain_names(len(self.chains))
        cyclic = tuple(names[index] for index in sorted(self.cyclic))
        templates = tuple(self.templates) if any(each is not None for each in self.templates) else ()
        if len(self.chains) == 1:
            return replace(self.chains[0], seeds=self.seeds, cyclic=cyclic, templates=templates)
        return Complex(
            self.header,
            name_chains(self.header, self.chains),
            stop_codons=self.stop_codons,
            seeds=self.seeds,
            cyclic=cyclic,
            templates=templates,
            path=self.path,
            line=self.line,
        )


def read_named_alignment(path: str, name: str, line: int) -> Alignment:
    """Read an alignment that a job names; see `find_named_file`.

    Raises:
        InputError: the file is missing, or it is not an alignment.
    """
    return read_alignment(os.fspath(find_named_file(path, name, "alignment file", line)))


def _check_alternatives(
    mapping: MappingWithLines, alternatives: Iterable[tuple[str, str]], path: str
) -> None:
    """Raise InputError if two keys have a value of which AlphaFold 3 takes one; names the line."""
    for first, second in alternatives:
        if mapping.get(first) and mapping.get(second):
            reason = f"both {first!r} and {second!r}: only one of them may be set"
            raise InputError(reason, path, mapping.line_of(second))


def read_entities(mapping: MappingWithLines, path: str) -> list[tuple[str, MappingWithLines]]:
    """Return (kind, entity) of each item of the list `sequences`; each item is a mapping with one key.

    Raises:
        InputError: the list is missing, or an item is not such a mapping.
    """
    line = mapping.line_of("sequences")
    items = mapping.get("sequences")
    if not isinstance(items, list) or not items:
        is_empty = isinstance(items, list)
        reason = "'sequences' is empty" if is_empty else "'sequences' is not a list of chains"
        reason = "no list 'sequences'" if items is None else reason
        raise InputError(reason, path, line)
    entities = []
    for item in items:
        entry = as_mapping(item, "an item of 'sequences'", path, line)
        if len(entry) != 1:
            raise InputError("an item of 'sequences' must have one key, such as protein", path, entry.line)
        ((kind, entity),) = entry.items()
        entities.append((kind, as_mapping(entity, repr(kind), path, entry.line_of(kind))))
    return entities
