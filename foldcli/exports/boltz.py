"""Job files of Boltz: YAML with lines `msa:` inserted."""

import codecs
import json
import re
from collections.abc import Mapping, Sequence

import yaml

from features.chemistry.residue_classes import MoleculeKind
from foldcli.exports.document import (
    AlignmentFiles,
    ChainRows,
    DocumentPolymer,
    ExportJob,
    log_unknown_entities,
    log_unknown_keys,
    read_protein,
)
from foldcli.inputs.formats import boltz
from foldcli.inputs.formats.job_fields import Refuse, read_chains, read_entities
from foldcli.inputs.formats.json_with_lines import (
    MappingWithLines,
    as_mapping,
    decode_utf8,
    parse_yaml_with_lines,
)
from foldcli.inputs.queries import name_of_file
from msa.base.errors import InputError

_KNOWN_KEYS = dict.fromkeys(("protein", "rna", "dna"), boltz.POLYMER_KEYS) | {"ligand": boltz.LIGAND_KEYS}
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
# values with which Boltz searches itself, as it does without the key
_NO_VALUE = (None, "", "0")


class BoltzDocument:
    """A job of Boltz, which names a table of rows with their pairing keys for each protein.

    Args:
        refuse: not called, because the file has one job.

    Raises:
        InputError: the file is no job; names the line.
    """

    def __init__(self, data: bytes, path: str, refuse: Refuse) -> None:
        self.path = path
        if data.lstrip().startswith(b">"):
            raise InputError("FASTA has no place for alignments of several chains: give a YAML file", path, 1)
        self._content = as_mapping(parse_yaml_with_lines(data, path), "the file", path)
        self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        self._text = decode_utf8(data, path)
        self._edits: list[tuple[int, int, str]] = []
        if self._content.keys() & {"dialect", "modelSeeds"}:
            raise InputError("a job of AlphaFold 3: --format af3", path, self._content.line)
        log_unknown_keys(self._content, boltz.JOB_KEYS)
        entities = [(kind.lower(), entity) for kind, entity in read_entities(self._content)]
        log_unknown_entities(entities, _KNOWN_KEYS)
        self._nodes = _nodes_of_entities(self._text)
        self._proteins: dict[int, MappingWithLines] = {}
        proteins = []
        for place, (kind, entity) in enumerate(entities):
            if kind != "protein":
                continue
            own = None if entity.get("msa") in _NO_VALUE else "msa"
            text, line = entity.text("sequence"), entity.line_of("sequence")
            proteins.append(read_protein(text, read_chains(entity, "id")[0], place, path, line, own))
            self._proteins[place] = entity
        self._check_same(proteins)
        self.jobs = [ExportJob(name_of_file(path), tuple(proteins), self._content.line)]

    def _check_same(self, proteins: Sequence[DocumentPolymer]) -> None:
        """Raise InputError if equal proteins have different alignments, which Boltz refuses."""
        given = {each.sequence: each.own_alignment is None for each in proteins}
        for protein in proteins:
            if (protein.own_alignment is None) != given[protein.sequence]:
                reason = f"chain {protein.chain} has the sequence of another chain, and only one has an msa"
                raise InputError(reason, self.path, protein.line)

    def fill(
        self, job: ExportJob, molecule: MoleculeKind, found: Mapping[str, ChainRows], files: AlignmentFiles
    ) -> None:
        """Give the proteins of the job their alignments."""
        paths = {
            sequence: str(files.write(f"{name}.csv", _table(found[sequence])))
            for sequence, name in job.sequences(molecule).items()
        }
        for protein in job.unaligned(molecule):
            path = paths[protein.sequence]
            self._proteins[protein.place]["msa"] = path
            self._insert(self._nodes[protein.place], path if _PLAIN.fullmatch(path) else json.dumps(path))

    def edited(self) -> bytes:
        """Return the content of the file with the inserted lines.

        Raises:
            InputError: a line cannot be inserted into this kind of YAML.
        """
        text = self._text
        for start, end, new in sorted(self._edits, reverse=True):
            text = text[:start] + new + text[end:]
        try:
            unchanged = parse_yaml_with_lines(text.encode(), self.path) == self._content
        except InputError:
            unchanged = False
        if not unchanged:
            reason = "cannot insert a line msa: write the proteins as plain mappings, one key per line"
            raise InputError(reason, self.path)
        return self._mark + text.encode()

    def _insert(self, node: yaml.MappingNode, value: str) -> None:
        """Give a protein the key `msa`: replace its empty value, or insert a line before the sequence's."""
        keys = {key.value: (key, content) for key, content in node.value}
        if "msa" in keys:
            content = keys["msa"][1]
            start, end = content.start_mark.index, content.end_mark.index
            self._edits.append((start, end, f" {value}" if start == end else value))
            return
        mark = keys["sequence"][0].start_mark
        newline = "\r\n" if "\r\n" in self._text else "\n"
        separator = ", " if node.flow_style else newline + " " * mark.column
        self._edits.append((mark.index, mark.index, f"msa: {value}{separator}"))


def _nodes_of_entities(text: str) -> list[yaml.MappingNode]:
    """Return the node of each item of the list `sequences`, in a file that has been parsed."""
    root = yaml.compose(text, yaml.BaseLoader)
    assert isinstance(root, yaml.MappingNode)
    items = next(content for key, content in root.value if key.value == "sequences")
    return [item.value[0][1] for item in items.value]


def _table(rows: ChainRows) -> str:
    """Return Boltz's table of an alignment; rows of several chains with one key are paired."""
    pairs = list(rows.pairs())
    lines = [f"{0 if pairs else -1},{rows.query.text}"]
    lines += [f"{number},{row.text}" for number, row in pairs]
    lines += [f"-1,{row.text}" for row in rows.unpaired[1:]]
    return "\n".join(["key,sequence", *lines, ""])
