"""Records that are not protein sequences, recognised by header or by letters.

Boltz writes `>A|dna` (chain, kind, alignment), Chai `>dna|name=A`. The PDB marks nucleic acids as `mol:na`,
or describes them like `RNA (76-MER)`. HH-suite writes the secondary structure to A3M files as rows such as
`>ss_pred`.
"""

import re
from typing import Final, NamedTuple

PROTEIN: Final = "protein"
RNA: Final = "rna"
_KINDS = {
    "protein": PROTEIN, "peptide": PROTEIN, "dna": "DNA", "rna": "RNA", "ccd": "a ligand (ccd)",
    "smiles": "a ligand (smiles)", "ligand": "a ligand", "glycan": "a glycan", "ion": "an ion",
}  # fmt: skip
_OTHERS = "|".join(name for name, kind in _KINDS.items() if kind != PROTEIN).encode()
# a header line that declares another molecule than a protein
_OTHER_HEADER = re.compile(
    rb"^>[ \t]*(?:(?:%b)[ \t]*\||[^|\n]*\|[ \t]*(?:%b)[ \t\r]*(?:\||$))" % (_OTHERS, _OTHERS),
    re.IGNORECASE | re.MULTILINE,
)
_PDB_NUCLEIC = re.compile(r"\bmol:na\b|\b[DR]NA \((?:5'-|3'-|\d+-mer\))", re.IGNORECASE)
_ANNOTATION = re.compile(r"(?:ss_pred|ss_conf|ss_dssp|sa_dssp|aa_pred|aa_dssp)(?![A-Za-z0-9])", re.IGNORECASE)
# shortest sequence, and share of its letters, that make it a nucleic acid
_MIN_LENGTH, _MIN_SHARE = 21, 0.95
_MIN_BASES = 3
_BASES = frozenset("ACGTUN")


class DeclaredMolecule(NamedTuple):
    """The molecule that a header in the style of Boltz or Chai declares.

    Attributes:
        kind: PROTEIN, or a description such as "a ligand (ccd)".
        name: id of the chain or molecule.
        alignment: the alignment that Boltz's header names; empty if there is none.
    """

    kind: str
    name: str
    alignment: str = ""


def declared_molecule(header: str) -> DeclaredMolecule | None:
    """Return the molecule that a header declares; None for a header that declares none."""
    fields = [field.strip() for field in header.split("|")]
    if len(fields) > 1:
        if kind := _KINDS.get(fields[0].lower()):
            return DeclaredMolecule(kind, fields[1].removeprefix("name=").strip() or fields[0])
        if kind := _KINDS.get(fields[1].lower()):
            return DeclaredMolecule(kind, fields[0] or fields[1], "".join(fields[2:3]))
    return DeclaredMolecule("a nucleic acid", header) if _PDB_NUCLEIC.search(header) else None


def declares_other_molecules(text: bytes) -> bool:
    """Return True if a header in the content of a FASTA file declares another molecule than a protein."""
    return _OTHER_HEADER.search(text) is not None


def is_annotation(name: str) -> bool:
    """Return True if a header of an A3M file is that of a row of annotations instead of a sequence."""
    return _ANNOTATION.match(name) is not None


def looks_like_nucleic_acid(sequence: str) -> bool:
    """Return True if a sequence of more than 20 letters consists of A, C, G, T, U and N to 95 %.

    It must have three different ones of A, C, G, T and U, so that proteins of one or two residues, such as
    polyalanine, are none.
    """
    if len(sequence) < _MIN_LENGTH:
        return False
    counts = {letter: sequence.count(letter) for letter in _BASES}
    bases = sum(count > 0 for letter, count in counts.items() if letter != "N")
    return bases >= _MIN_BASES and sum(counts.values()) >= _MIN_SHARE * len(sequence)


def describe_non_protein(header: str, sequence: str) -> str | None:
    """Return a description of a record, such as "DNA", if it is not a protein; else None.

    Args:
        header: its header, without `>`.
        sequence: its letters in upper case; `:` separates chains.
    """
    declared = declared_molecule(header)
    if declared is not None and declared.kind != PROTEIN:
        return declared.kind
    if any(map(looks_like_nucleic_acid, sequence.split(":"))):
        return "a nucleic acid (its letters are A, C, G, T, U or N)"
    return None
