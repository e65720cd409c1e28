"""Errors of molecules that a user named or drew."""

import os

from msa.base.errors import InputError


class UnknownComponent(InputError):
    """A code that is not in the Chemical Component Dictionary, nor among the components of the job."""

    def __init__(
        self, code: str, path: str | os.PathLike[str] | None = None, line: int | None = None
    ) -> None:
        self.code = code
        super().__init__(f"unknown component {code!r}: not in the Chemical Component Dictionary", path, line)
        # what pickling calls the constructor with
        self.args = code, path, line


class InvalidMolecule(InputError):
    """A molecule that RDKit cannot read, such as a SMILES string with a mistake."""


class UnknownAtom(InputError):
    """An atom that a residue does not have."""
