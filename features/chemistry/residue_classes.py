"""The 32 residue classes of the all-atom network, and the letters of its sequences.

Classes 0 to 20 are the amino acids and the unknown one, 21 to 25 RNA, 26 to 30 DNA (each with an unknown
nucleotide last), 31 is the gap (AlphaFold 3 supplement, table 13, with one unknown per kind of polymer).
"""

from enum import IntEnum
from types import MappingProxyType

import numpy as np

from msa.base.residues import RESTYPE_NAMES, RESTYPES


class MoleculeKind(IntEnum):
    """The kind of a chain."""

    PROTEIN = 0
    RNA = 1
    DNA = 2
    LIGAND = 3


_PROTEIN_LETTERS, _PROTEIN_CODES = f"{RESTYPES}X", tuple(RESTYPE_NAMES)
_RNA_LETTERS, _RNA_CODES = "AGCUN", ("A", "G", "C", "U", "N")
_DNA_LETTERS, _DNA_CODES = "AGCTN", ("DA", "DG", "DC", "DT", "DN")

# component codes of the classes before the gap
STANDARD_CODES = (*_PROTEIN_CODES, *_RNA_CODES, *_DNA_CODES)
CLASSES = len(STANDARD_CODES) + 1
GAP = CLASSES - 1
UNKNOWN = _PROTEIN_CODES.index("UNK")

_CLASS_OF_CODE = MappingProxyType({code: index for index, code in enumerate((*STANDARD_CODES, "GAP"))})

_LETTERS = MappingProxyType(
    {
        MoleculeKind.PROTEIN: (_PROTEIN_LETTERS, _PROTEIN_CODES),
        MoleculeKind.RNA: (_RNA_LETTERS, _RNA_CODES),
        MoleculeKind.DNA: (_DNA_LETTERS, _DNA_CODES),
    }
)

# atoms that a standard residue loses in a polymer
LEAVING_ATOMS = MappingProxyType(
    {
        MoleculeKind.PROTEIN: frozenset({"OXT"}),
        MoleculeKind.RNA: frozenset({"OP3", "O3P"}),
        MoleculeKind.DNA: frozenset({"OP3", "O3P"}),
    }
)


def component_code(letter: str, kind: MoleculeKind) -> str:
    """Return the component code of a sequence letter; the unknown residue's for any other letter."""
    letters, codes = _LETTERS[kind]
    index = letters.find(letter)
    return codes[index]


def sequence_letter(code: str, kind: MoleculeKind) -> str | None:
    """Return the sequence letter of a standard residue, or of the unknown one; None for any other."""
    letters, codes = _LETTERS[kind]
    return letters[codes.index(code)] if code in codes else None


def residue_class(code: str) -> int:
    """Return the class of a component: the unknown amino acid's for all that are not standard residues."""
    return _CLASS_OF_CODE.get(code, UNKNOWN)


def alignment_classes(kind: MoleculeKind) -> np.ndarray:
    """Return the class of every byte value in an alignment of this kind of polymer: int16 [256]."""
    letters, codes = _LETTERS[kind]
    table = np.full(256, residue_class(codes[-1]), np.int16)
    for letter, code in zip(letters, codes, strict=True):
        table[ord(letter)] = residue_class(code)
    table[ord("-")] = GAP
    return table
