"""Job files of Chai: FASTA, unchanged, with a folder of alignments in Parquet next to it."""

import hashlib
import re
from collections.abc import Mapping
from io import BytesIO

from features.chemistry.residue_classes import MoleculeKind
from foldcli.exports.document import (
    AlignmentFiles,
    ChainRows,
    DocumentPolymer,
    ExportJob,
    parent_letter,
    read_protein,
)
from foldcli.inputs.formats.fasta import TextRecord, read_records
from foldcli.inputs.formats.job_fields import Refuse
from foldcli.inputs.formats.json_with_lines import decode_utf8
from foldcli.inputs.queries import name_of_file
from foldcli.logs import logger
from msa.alignments.complex_a3m import A3mRow
from msa.base.errors import MissingError

_HEADER = re.compile(r"([A-Za-z]+)[ \t]*\|[ \t]*(?:name=)?[ \t]*(.+)")
_PART = re.compile(r"\(([A-Z0-9]+)\)|([A-Z])")
_KINDS = ("protein", "rna", "dna", "ligand", "glycan")
_LETTERS = frozenset("ACDEFGHIKLMNPQRSTVWY")
# the databases that Chai knows; it takes at most 10,000 rows of the first
_UNIREF, _OTHER = "uniref90", "bfd_uniclust"


class ChaiDocument:
    """A job of Chai: a FASTA file, and one file of alignments per distinct protein, named by its hash.

    Args:
        refuse: not called, because the file has one job.

    Raises:
        InputError: the file is no job; names the line.
        MissingError: pyarrow, which writes Parquet, is missing.
    """

    def __init__(self, data: bytes, path: str, refuse: Refuse) -> None:
        check_parquet()
        self.path, self._data = path, data
        proteins: list[DocumentPolymer] = []
        for place, record in enumerate(read_records(decode_utf8(data, path), path)):
            if (match := _HEADER.fullmatch(record.header)) is None:
                raise record.error(f"header {record.header[:59]!r} is not Chai's: >protein|name=A")
            if match[1].lower() not in _KINDS:
                logger.info("%s:%d: passed through: unknown entity %r", path, record.line, match[1])
            if match[1].lower() == "protein":
                proteins.append(read_protein(_one_letter(record), match[2], place, path, record.line))
        self.jobs = [ExportJob(name_of_file(path), tuple(proteins), 1)]

    def fill(
        self, job: ExportJob, molecule: MoleculeKind, found: Mapping[str, ChainRows], files: AlignmentFiles
    ) -> None:
        """Write the alignments of the job's proteins."""
        for sequence in job.sequences(molecule):
            name = hashlib.sha256(sequence.encode()).hexdigest()
            files.write(f"{name}.aligned.pqt", _parquet(found[sequence]))

    def edited(self) -> bytes:
        """Return the content of the file, which does not change."""
        return self._data


def check_parquet() -> None:
    """Raise MissingError if pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401 - takes half a second, and only Chai's files need it
    except ImportError:
        raise MissingError(
            "Chai's alignments are Parquet files, and pyarrow, which writes them, is not installed",
            "pip install 'foldcli[parquet]'",
        ) from None


def _one_letter(record: TextRecord) -> str:
    """Return a sequence in which the parents of modified residues, such as (SEP), stand for them.

    This is the sequence by which Chai finds an alignment.
    """
    text = "".join(record.text.split()).upper()
    parts = list(_PART.finditer(text))
    if "".join(part[0] for part in parts) != text:
        if "(" not in text and ")" not in text:
            return text  # is refused with the letter
        raise record.error("expected letters, and modified residues such as (SEP)")
    letters = (part[2] or parent_letter(part[1]) for part in parts)
    return "".join(letter if letter in _LETTERS else "X" for letter in letters)


def _parquet(rows: ChainRows) -> bytes:
    """Return Chai's file of an alignment; rows of several chains with one key are paired."""
    import pyarrow.parquet  # see check_parquet

    pairs = list(rows.pairs())
    paired = {row.text for _, row in pairs}
    keyed = [("", rows.query), *((str(number), row) for number, row in pairs)]
    keyed += [("", row) for row in rows.unpaired[1:] if row.text not in paired]
    table = pyarrow.table(
        {
            "sequence": [row.text for _, row in keyed],
            "source_database": ["query", *(_source(row) for _, row in keyed[1:])],
            "pairing_key": [key for key, _ in keyed],
            "comment": [row.header for _, row in keyed],
        }
    )
    stream = BytesIO()
    pyarrow.parquet.write_table(table, stream)
    return stream.getvalue()


def _source(row: A3mRow) -> str:
    return _UNIREF if row.header.startswith("UniRef") else _OTHER
