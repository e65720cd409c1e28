"""The organism of a sequence, from the FASTA headers of UniProt's and NCBI's databases.

>sp|P0C2L1|A3X1_LOXLA Dermonecrotic toxin ... OS=Loxosceles laeta OX=58217 GN=...
>UniRef100_A0A2L2TCV1 Endo-1,4-beta-xylanase n=1 Tax=Fusarium venenatum TaxID=56646 RepID=A0A2L2TCV1_9HYPO
>WP_000015725.1 [NiFe] hydrogenase small subunit [Escherichia coli]

SILVA's headers of ribosomal RNA have the lineage after the id: >AB1.1.9 Bacteria;Bacillota;Bacilli;...
"""

import re

_FIELDS = ("TaxID=", "RepID=", "OX=")
# the first word of a UniProt header, from which AlphaFold takes the species when it pairs chains
_ENTRY = re.compile(
    r"(?:tr|sp)\|[A-Za-z0-9]{6,10}(?:_\d+)?\|[A-Za-z0-9]+_([A-Za-z0-9]{1,5})(?:_\d+)?(?:[/\s]|$)"
)
# NCBI's accessions with their versions; nr joins the headers of equal sequences
_ACCESSION = r"[A-Z]{2,3}_?[0-9]{5,}\.[0-9]+"
_NCBI = re.compile(rf"{_ACCESSION}\s(?:.*?\s)?\[([^\[\]]+)\](?:\s+{_ACCESSION}\s.*|\s*)")
# the name of an organism, which ends before the next field
_NAME = re.compile(r"(?:^|\s)(?:OS|Tax)=(.+?)(?=\s+[A-Za-z]+=|\s*$)")

# ranks of SILVA's headers; a description of a protein has no two semicolons without a space after them
_LINEAGE = re.compile(r"\S+\s+((?:[^;=]+;(?=\S)){2,}[^;=]+)")


def organism_fields(header: str) -> str:
    """Return what names a header's organism: TaxID=, RepID= and OX=, or NCBI's [name]; empty without."""
    if fields := _fields(header):
        return " ".join(fields)
    return f"[{ncbi[1]}]" if (ncbi := _NCBI.fullmatch(header)) else ""


def taxon_id(header: str) -> str:
    """Return the taxon's number in a header's TaxID= or OX= field; 0 if it has none, as in MMseqs2."""
    fields = dict(field.split("=", 1) for field in _fields(header))
    return fields.get("TaxID") or fields.get("OX") or "0"


def taxon_name(header: str) -> str:
    """Return the organism's name in a header's OS= or Tax= field, or in NCBI's brackets; `-` without."""
    if match := _NAME.search(header) or _NCBI.fullmatch(header):
        return " ".join(match[1].split())
    return "-"


def taxon_lineage(header: str) -> str:
    """Return the ranks of the organism in SILVA's headers, separated by semicolons; `-` without."""
    match = _LINEAGE.fullmatch(header.strip().rstrip(";"))
    return " ".join(match[1].split()) if match else "-"


def _fields(header: str) -> list[str]:
    return [word for word in header.split() if word.startswith(_FIELDS) and word not in _FIELDS]


def species(header: str) -> str:
    """Return the species: UniProt's mnemonic (LOXLA), else the taxon's number, else NCBI's name, else "".

    Args:
        header: a header of a database, or of a row written by `msa.alignments.a3m.write_a3m`.
    """
    if entry := _ENTRY.match(header):
        return entry[1]
    if header.rstrip().endswith("]") and (ncbi := _NCBI.fullmatch(header)):
        return "_".join(ncbi[1].split())
    if "=" not in header:
        return ""
    fields = dict(field.split("=", 1) for field in _fields(header))
    mnemonic = fields.get("RepID", "").rpartition("_")
    return mnemonic[2] if mnemonic[0] else fields.get("OX") or fields.get("TaxID", "")
