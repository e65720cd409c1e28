"""Protein chains of a job file of another program, collected while it is read."""

from dataclasses import dataclass, field, replace

from features.assembly.job import OwnTemplate
from foldcli.inputs.complexes import Complex, name_chains
from foldcli.inputs.formats.job_fields import required_text
from foldcli.inputs.formats.json_with_lines import MappingWithLines
from foldcli.inputs.formats.tables import make_identifier
from model.chains import chain_names
from msa.alignments.files import Alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord, clean_sequence
from msa.io.molecules import other_molecule


@dataclass(frozen=True)
class AlignedRecord(FastaRecord):
    """A chain with its alignment."""

    alignment: Alignment = field(repr=False)


@dataclass
class ProteinJob:
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
