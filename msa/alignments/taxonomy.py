"""The organism of a sequence, from the FASTA headers of UniProt's databases.

>sp|P0C2L1|A3X1_LOXLA Dermonecrotic toxin ... OS=Loxosceles laeta OX=58217 GN=...
>UniRef100_A0A2L2TCV1 Endo-1,4-beta-xylanase n=1 Tax=Fusarium venenatum TaxID=56646 RepID=A0A2L2TCV1_9HYPO
"""

import re

_FIELDS = ("TaxID=", "RepID=", "OX=")
# the first word of a UniProt header, from which AlphaFold takes the species when it pairs chains
_ENTRY = re.compile(
    r"(?:tr|sp)\|[A-Za-z0-9]{6,10}(?:_\d+)?\|[A-Za-z0-9]+_([A-Za-z0-9]{1,5})(?:_\d+)?(?:[/\s]|$)"
)


def organism_fields(header: str) -> str:
    """Return a header's TaxID=, RepID= and OX= fields, separated by spaces; empty if it has none."""
    return " ".join(_fields(header))


def _fields(header: str) -> list[str]:
    return [word for word in header.split() if word.startswith(_FIELDS) and word not in _FIELDS]


def species(header: str) -> str:
    """Return UniProt's mnemonic of the species (LOXLA), else the taxon's number, else an empty string.

    Args:
        header: a header of a database, or of a row written by `msa.alignments.a3m.write_a3m`.
    """
    if entry := _ENTRY.match(header):
        return entry[1]
    if "=" not in header:
        return ""
    fields = dict(field.split("=", 1) for field in _fields(header))
    mnemonic = fields.get("RepID", "").rpartition("_")
    return mnemonic[2] if mnemonic[0] else fields.get("OX") or fields.get("TaxID", "")
