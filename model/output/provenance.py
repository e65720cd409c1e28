"""The origin of a structure, as recorded in its files."""

from collections.abc import Sequence
from dataclasses import dataclass

# columns for text after "REMARK nnn " in a PDB line
REMARK_WIDTH = 68


@dataclass(frozen=True)
class Provenance:
    """The origin of a structure.

    Args:
        name: name of the target.
        program: program and version, for example "foldcli 0.1.0".
        network: network and settings, for example "alphafold2_ptm_model_3, seed 0, 3 recycles".
        warning: a warning to print first, or None.
        copied_from: description of the template that the structure is a copy of; None for predictions.
        note: the network's origin, templates and expected accuracy in words, or None.
    """

    name: str
    program: str
    network: str
    warning: str | None = None
    copied_from: str | None = None
    note: str | None = None

    @property
    def title(self) -> str:
        """The title of the structure."""
        if self.copied_from is not None:
            return f"Model of {self.name}, copied from {self.copied_from}"
        return f"{self.warning or ''} Predicted structure of {self.name}".strip()

    @property
    def confidence(self) -> str:
        """The meaning of the B-factors of residues."""
        if self.copied_from is not None:
            return "Expected lDDT-CA of copies with this identity and distance to gaps, 0 to 100"
        return "Predicted lDDT-CA, 0 to 100"

    @property
    def description(self) -> str:
        """The network and its note."""
        return f"{self.network}. {self.note}" if self.note else self.network

    def with_warning(self, text: str) -> str:
        """Return a sentence followed by the warning, if there is one."""
        return f"{text}. {self.warning}" if self.warning else text

    def pdb_remarks(self, confidence: str, more: Sequence[str] = ()) -> list[str]:
        """Return the PDB lines that tell the origin and the meaning of B-factors."""
        remarks = [self.warning] if self.warning else []
        if self.copied_from is not None:
            remarks += [f"Copied from {self.copied_from}, without a prediction."]
        remarks += [f"{self.program}, {self.network}", f"B-factor: {confidence}"]
        remarks += [*([self.note] if self.note else []), *more]
        return [f"REMARK   6 {wrapped}" for text in remarks for wrapped in _wrap(text)]


def _wrap(text: str) -> list[str]:
    """Split text into lines of at most REMARK_WIDTH characters."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > REMARK_WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]
