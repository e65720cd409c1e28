"""Job files in JSON: those of AlphaFold 3, Protenix and OpenFold3."""

import codecs
import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from features.chemistry.residue_classes import MoleculeKind
from foldcli.exports.document import (
    AlignmentFiles,
    ChainRows,
    DocumentPolymer,
    ExportJob,
    a3m_text,
    distinct_names,
    log_unknown_entities,
    log_unknown_keys,
    own_alignment,
    parent_letter,
    read_protein,
    read_rna,
)
from foldcli.exports.templates import template_entries
from foldcli.inputs.formats import alphafold3, openfold3
from foldcli.inputs.formats.job_fields import Refuse, read_chains, read_entities
from foldcli.inputs.formats.json_with_lines import (
    MappingWithLines,
    as_mapping,
    decode_utf8,
    parse_json_with_lines,
)
from foldcli.logs import logger
from msa.alignments.complex_a3m import A3mRow
from msa.base.errors import InputError

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_ALIGNMENT_KEYS = ("unpairedMsa", "unpairedMsaPath", "pairedMsa", "pairedMsaPath")
_ALPHAFOLD3_KEYS = dict.fromkeys(("protein", "rna", "dna"), alphafold3.POLYMER_KEYS) | {
    "ligand": alphafold3.LIGAND_KEYS
}
_PROTENIX_JOB_KEYS = ("name", "sequences", "modelSeeds", "covalent_bonds", "constraint", "assembly_id")
_PROTENIX_KINDS = ("proteinChain", "rnaSequence", "dnaSequence", "ligand", "ion")
_PROTENIX_PROTEIN_KEYS = (
    "sequence", "count", "id", "modifications", "msa", "templatesPath", *_ALIGNMENT_KEYS,
)  # fmt: skip


class JsonDocument:
    """A job file in JSON.

    Args:
        refuse: called with the error of each job that cannot be read.

    Raises:
        InputError: the file cannot be read as a whole.
    """

    def __init__(self, data: bytes, path: str, refuse: Refuse) -> None:
        self.path = path
        if path.endswith((".yaml", ".yml")):
            raise InputError("YAML: a job of Boltz has --format boltz", path)
        content = parse_json_with_lines(data, path)
        self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        self._text = JsonText(decode_utf8(data, path))
        self.jobs: list[ExportJob] = []
        for name, job in self._split(content):
            try:
                self.jobs.append(self._read(name, as_mapping(job, "a job", path)))
            except InputError as error:
                refuse(error)
        self._folders = dict(
            zip(map(id, self.jobs), distinct_names(job.name for job in self.jobs), strict=True)
        )

    def edited(self) -> bytes:
        """Return the content of the file with all that was filled in."""
        return self._mark + self._text.edited().encode()

    def fill(
        self, job: ExportJob, molecule: MoleculeKind, found: Mapping[str, ChainRows], files: AlignmentFiles
    ) -> None:
        """Give the proteins, or the RNA chains, of a job their alignments."""
        folder = self._folders[id(job)]
        values = {
            sequence: self._values(molecule, found[sequence], f"{folder}/{name}", files)
            for sequence, name in job.sequences(molecule).items()
        }
        for polymer in job.unaligned(molecule):
            added = values[polymer.sequence]
            self._text.set(polymer.place, {key: added[key] for key in added if key not in polymer.kept})

    def _split(self, content: Any) -> Iterable[tuple[str, Any]]:
        """Return the name, if the job has none of its own, and the content of each job."""
        if isinstance(content, MappingWithLines) and "queries" in content:
            raise content.error("a file of OpenFold3: --format openfold3")
        return [("", job) for job in alphafold3.list_jobs(content, self.path)]

    @abstractmethod
    def _read(self, name: str, job: MappingWithLines) -> ExportJob:
        """Return a job."""

    @abstractmethod
    def _values(
        self, molecule: MoleculeKind, rows: ChainRows, name: str, files: AlignmentFiles
    ) -> dict[str, Any]:
        """Return the keys that give a chain its alignment; files get names that start with `name`."""


class AlphaFold3Document(JsonDocument):
    """A job of AlphaFold 3's program; alignments are written into it.

    Args:
        in_files: write the alignments into files that the job names instead.
    """

    def __init__(self, data: bytes, path: str, refuse: Refuse, in_files: bool = False) -> None:
        self._in_files = in_files
        super().__init__(data, path, refuse)

    def _read(self, name: str, job: MappingWithLines) -> ExportJob:
        if job.get("dialect", "alphafold3") != "alphafold3":
            raise job.error("only jobs of the dialect alphafold3 have a place for alignments", "dialect")
        log_unknown_keys(job, alphafold3.JOB_KEYS)
        self._log_relative_paths(job)
        entities = read_entities(job)
        log_unknown_entities(entities, _ALPHAFOLD3_KEYS)
        for kind, entity in entities:
            if kind == "proteinChain":
                raise entity.error(
                    "proteinChain: a job of AlphaFold Server or Protenix, not of AlphaFold 3's program"
                )
            self._log_relative_paths(entity)
        polymers: list[DocumentPolymer | None] = []
        for entity in (entity for kind, entity in entities if kind == "protein"):
            chain = read_chains(entity, "id")[0]
            line, own = entity.line_of("sequence"), own_alignment(entity, _ALIGNMENT_KEYS)
            text = self._with_parents(entity.text("sequence"), entity)
            kept = frozenset(["templates"] if entity.get("templates") is not None else ())
            protein = read_protein(text, chain, entity.start, self.path, line, own)
            polymers.append(replace(protein, kept=kept))
        for entity in (entity for kind, entity in entities if kind == "rna"):
            polymers.append(read_rna(entity, _ALIGNMENT_KEYS, read_chains(entity, "id")[0]))
        return ExportJob(job.text("name"), tuple(filter(None, polymers)), job.line)

    def _with_parents(self, sequence: str, entity: MappingWithLines) -> str:
        """Return a sequence with the parents of modified residues, which AlphaFold 3 expects in the query."""
        letters = list(sequence)
        items = entity.get("modifications")
        for item in items if isinstance(items, list) else ():
            code, position = (
                (item.get("ptmType"), item.get("ptmPosition")) if isinstance(item, dict) else ("", 0)
            )
            if not isinstance(code, str) or not isinstance(position, int) or not 0 < position <= len(letters):
                continue  # AlphaFold 3 refuses it
            if (letter := parent_letter(code)) and letter != letters[position - 1].upper():
                logger.info(
                    "%s:%d: residue %d is searched as %s, the parent of %s, not as %s",
                    self.path, entity.line_of("modifications"), position, letter, code, letters[position - 1],
                )  # fmt: skip
                letters[position - 1] = letter
        return "".join(letters)

    def _log_relative_paths(self, entity: MappingWithLines) -> None:
        """Warn of files that AlphaFold 3 looks for in the folder of the job."""
        templates = entity.get("templates")
        for mapping in (entity, *(templates if isinstance(templates, list) else ())):
            for key in mapping if isinstance(mapping, MappingWithLines) else ():
                value = mapping[key]
                if key.endswith("Path") and isinstance(value, str) and not value.startswith("/"):
                    logger.warning(
                        "%s:%d: %s is relative to the job: copy the file next to the written job",
                        self.path, mapping.line_of(key), key,
                    )  # fmt: skip

    def _values(
        self, molecule: MoleculeKind, rows: ChainRows, name: str, files: AlignmentFiles
    ) -> dict[str, Any]:
        texts = {"unpairedMsa": a3m_text(rows.unpaired)}
        if molecule == MoleculeKind.PROTEIN:
            texts["pairedMsa"] = _pairs_by_name(rows)
        values: dict[str, Any] = {}
        if rows.templates is not None:
            values["templates"] = template_entries(rows.templates)
        if not self._in_files:
            return texts | values
        for key, text in texts.items():
            if text:
                path = files.write(f"{name}_{key.removesuffix('Msa')}.a3m", text)
                values[f"{key}Path"] = str(path.relative_to(files.base))
            else:
                values[key] = text
        return values


class ProtenixDocument(JsonDocument):
    """Jobs of Protenix; alignments are in folders like those of its own search."""

    def _read(self, name: str, job: MappingWithLines) -> ExportJob:
        log_unknown_keys(job, _PROTENIX_JOB_KEYS)
        entities = read_entities(job)
        if any(kind == "protein" for kind, _ in entities):
            raise job.error("a job of AlphaFold 3: --format af3")
        polymers: list[DocumentPolymer | None] = []
        log_unknown_entities([each for each in entities if each[0] not in _PROTENIX_KINDS], {})
        proteins = [entity for kind, entity in entities if kind == "proteinChain"]
        for number, entity in enumerate(proteins, 1):
            log_unknown_keys(entity, _PROTENIX_PROTEIN_KEYS)
            own = own_alignment(entity, ("msa", *_ALIGNMENT_KEYS))
            text, line = entity.text("sequence"), entity.line_of("sequence")
            polymers.append(read_protein(text, str(number), entity.start, self.path, line, own))
        rna = [entity for kind, entity in entities if kind == "rnaSequence"]
        polymers += [read_rna(entity, _ALIGNMENT_KEYS, str(number)) for number, entity in enumerate(rna, 1)]
        return ExportJob(job.text("name"), tuple(filter(None, polymers)), job.line)

    def _values(
        self, molecule: MoleculeKind, rows: ChainRows, name: str, files: AlignmentFiles
    ) -> dict[str, Any]:
        values = {"unpairedMsaPath": str(files.write(f"{name}/non_pairing.a3m", a3m_text(rows.unpaired)))}
        if text := _pairs_by_name(rows):
            values["pairedMsaPath"] = str(files.write(f"{name}/pairing.a3m", text))
        return values


class OpenFold3Document(JsonDocument):
    """Queries of OpenFold3; alignments are in files named like those of its own search."""

    def _split(self, content: Any) -> Iterable[tuple[str, Any]]:
        content = as_mapping(content, "the file", self.path)
        if "queries" not in content:
            raise content.error("no 'queries', as files of OpenFold3 have")
        log_unknown_keys(content, ("seeds", "queries"))
        if not (queries := content.mapping("queries")):
            raise content.error("no query", "queries")
        return queries.items()

    def _read(self, name: str, job: MappingWithLines) -> ExportJob:
        log_unknown_keys(job, openfold3.QUERY_KEYS)
        without = next((key for key in ("use_msas", "use_main_msas") if job.get(key) is False), None)
        polymers: list[DocumentPolymer | None] = []
        for entity in openfold3.query_chains(job):
            log_unknown_keys(entity, openfold3.CHAIN_KEYS)
            kind = entity.text("molecule_type").upper()
            if kind == "PROTEIN":
                polymers.append(self._protein(entity, without))
            elif kind == "RNA" and not without:
                chain = read_chains(entity, "chain_ids")[0]
                polymers.append(read_rna(entity, ("main_msa_file_paths",), chain))
            elif kind not in MoleculeKind.__members__:
                log_unknown_entities([(entity["molecule_type"], entity)], {})
        return ExportJob(name, tuple(filter(None, polymers)), job.line)

    def _protein(self, entity: MappingWithLines, without: str | None) -> DocumentPolymer:
        """Return a protein; `without` is the key that says that the query uses no alignments."""
        keys = ("main_msa_file_paths", "paired_msa_file_paths")
        own = without or next((key for key in keys if entity.get(key)), None)
        text, line = entity.text("sequence"), entity.line_of("sequence")
        return read_protein(text, read_chains(entity, "chain_ids")[0], entity.start, self.path, line, own)

    def _values(
        self, molecule: MoleculeKind, rows: ChainRows, name: str, files: AlignmentFiles
    ) -> dict[str, Any]:
        query, _, chain = name.rpartition("/")
        # OpenFold3 takes folders of one name for those of one sequence
        folder = f"{chain}-{hashlib.sha256(rows.query.text.encode()).hexdigest()[:8]}"
        # the names of its own searches
        file_name = "rnacentral_hits.a3m" if molecule == MoleculeKind.RNA else "colabfold_main.a3m"
        main = files.write(f"{query}/main/{folder}/{file_name}", a3m_text(rows.unpaired))
        values = {"main_msa_file_paths": [str(main)]}
        if rows.paired:
            gaps = A3mRow("DUMMY", "-" * len(rows.query.text))
            text = a3m_text([rows.query, *(gaps if row is None else row for row in rows.paired)])
            paired = files.write(f"{query}/paired/{folder}/colabfold_paired.a3m", text)
            values["paired_msa_file_paths"] = [str(paired)]
        return values


def _pairs_by_name(rows: ChainRows) -> str:
    """Return the paired rows, A3M, as programs read them that pair rows by species; empty without.

    These programs know a species only by the end of UniProt's names. So that they make the same pairs, each
    pair has a name of its own; the header of the row follows.
    """
    pairs = [
        A3mRow(f"tr|PAIR{number:05d}|PAIR{number:05d}_{number:05d} {row.header}", row.text)
        for number, row in rows.pairs()
    ]
    return a3m_text([rows.query, *pairs]) if pairs else ""


class JsonText:
    """The text of a valid JSON file, and the edits to make in it; all else stays as it was, byte for byte.

    Args:
        text: the text, which `foldcli.inputs.formats.json_with_lines.parse_json_with_lines` accepts.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # by the offsets of the first character and of the one behind the last
        self._edits: dict[tuple[int, int], str] = {}

    def set(self, start: int, values: Mapping[str, Any]) -> None:
        """Set values of the object that begins at an offset, which has at least one key.

        The value of a key that it has is replaced; other keys are added at its end, with the same space
        before them as its first key has.
        """
        members = self._members(start)
        last = max(end for _, end in members.values())
        space = self._text[start + 1 : self._skip(start + 1)]
        added = ""
        for key, value in values.items():
            text = json.dumps(value)
            if key in members:
                self._edits[members[key]] = text
            else:
                added += f",{space if chr(10) in space else ' '}{json.dumps(key)}: {text}"
        if added:
            self._edits[last, last] = added

    def edited(self) -> str:
        """Return the text with all edits."""
        parts, done = [], 0
        for (start, end), text in sorted(self._edits.items()):
            parts += [self._text[done:start], text]
            done = end
        return "".join([*parts, self._text[done:]])

    def _members(self, start: int) -> dict[str, tuple[int, int]]:
        """Return the ends of the values, by their keys, of the object that begins at an offset."""
        spans = {}
        index = self._skip(start + 1)
        while self._text[index] != "}":
            key, index = _DECODER.raw_decode(self._text, index)
            begin = self._skip(self._skip(index) + 1)
            _, end = _DECODER.raw_decode(self._text, begin)
            spans[key] = begin, end
            index = self._skip(end)
            if self._text[index] == ",":
                index = self._skip(index + 1)
        return spans

    def _skip(self, index: int) -> int:
        """Return the offset of the next character that is not space."""
        match = _SPACE.match(self._text, index)
        assert match is not None
        return match.end()
