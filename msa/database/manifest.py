"""The manifest of a target database: what the folder holds, and that it is whole."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from msa import alphabet
from msa.errors import InputError

FORMAT = "foldcli target database"
FORMAT_VERSION = 2
"""The newest that is read. A database has the oldest that can hold it: 2 with clusters, else 1."""
PLAIN_VERSION = 1
MANIFEST = "manifest.json"
RESIDUES, OFFSETS, LENGTHS = "residues.u8", "offsets.i64", "lengths.i32"
HEADERS, HEADER_INDEX = "headers.bin", "headers.idx"
PARTS = (RESIDUES, OFFSETS, LENGTHS, HEADERS, HEADER_INDEX)
CLUSTERS, MEMBERS = "clusters.idx", "members.i64"
CLUSTER_PARTS = (CLUSTERS, MEMBERS)
"""Of a database with clusters, beside PARTS."""

_REMARKS = {
    "empty_sequences": "records without a sequence, left out",
    "gap_characters": "gap characters ('-' or '.'), removed",
    "inner_stops": "stop codons ('*') inside sequences, replaced by X",
    "end_stops": "stop codons ('*') at the end of sequences, removed",
    "lower_case_letters": "lower-case letters, taken as upper case",
}


@dataclass(frozen=True)
class Part:
    """One file of a database.

    Attributes:
        bytes: its size.
        sha256: its checksum, in hexadecimal.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Clusters:
    """Of a database whose searches go through the representatives of clusters.

    Attributes:
        representatives: how many there are: the first sequences of the database.
        residues: theirs.
        largest: sequences of the largest cluster.
        table: name (without its folder) of the table that the clusters were read from.
    """

    representatives: int
    residues: int
    largest: int
    table: str


@dataclass(frozen=True)
class Manifest:
    """What manifest.json says.

    Attributes:
        sequences: how many there are.
        residues: how many there are, padding not counted.
        masked_residues: how many carry the soft-mask bit.
        length_quantiles: residues, by quantile ("0", "0.05", "0.25", "0.5", "0.75", "0.95", "1").
        duplicate_ids: sequences whose id an earlier one has; they are kept.
        oddities: what was odd in the input and how often, by the names of msa.io.fasta_blocks.ODDITIES.
        masking: the masking method's parameters by name; None when nothing was masked.
        inputs: name (without its folder), decompressed size as FASTA in bytes, and format where that is
            another, of each input, in order.
        built_by: versions of the programs that matter.
        parts: size and checksum of each file.
        clusters: see Clusters; None where every sequence is searched.
    """

    sequences: int
    residues: int
    masked_residues: int
    length_quantiles: dict[str, int]
    duplicate_ids: int
    oddities: dict[str, int]
    masking: dict[str, Any] | None
    inputs: list[dict[str, Any]]
    built_by: dict[str, str]
    parts: dict[str, Part]
    clusters: Clusters | None = None

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each part: what tells one database's content from another's."""
        return {name: part.sha256 for name, part in self.parts.items()}

    def remarks(self) -> list[str]:
        """What was odd in the input, what became of it, and how often; empty for clean input."""
        told = [(self.oddities[name], told_as) for name, told_as in _REMARKS.items()]
        told.append((self.duplicate_ids, "sequences with an id that an earlier one has, all kept"))
        return [f"{told_as}: {count:,}" for count, told_as in told if count]

    def as_json(self) -> dict[str, Any]:
        """The manifest as written to the file."""
        layout = {
            "format": FORMAT,
            "format_version": PLAIN_VERSION if self.clusters is None else FORMAT_VERSION,
            "alphabet": alphabet.LETTERS,
            "mask_bit": alphabet.MASK_BIT,
            "pad_byte": alphabet.PAD,
        }
        content = layout | asdict(self)
        if self.clusters is None:
            del content["clusters"]
        return content


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a database folder.

    Raises:
        InputError: not a database, made by a newer version, damaged, or inconsistent with itself.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"not a target database: no {MANIFEST} in the folder", folder) from None
    except ValueError as error:
        raise InputError(f"damaged manifest: no JSON ({error})", path) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError("not the manifest of a target database", path)
    version = content.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise InputError(f"damaged manifest: format version {version!r}", path)
    if version > FORMAT_VERSION:
        raise InputError(
            f"format version {version} is newer than this foldcli reads ({FORMAT_VERSION}): update foldcli",
            path,
        )
    if (content.get("alphabet"), content.get("mask_bit")) != (alphabet.LETTERS, alphabet.MASK_BIT):
        raise InputError("damaged manifest: unknown residue alphabet", path)
    try:
        values = {field.name: content[field.name] for field in fields(Manifest) if field.name != "clusters"}
        parts: tuple[str, ...] = PARTS
        if version > PLAIN_VERSION:
            values["clusters"], parts = Clusters(**content["clusters"]), PARTS + CLUSTER_PARTS
        values["parts"] = {name: Part(**values["parts"][name]) for name in parts}
        manifest = Manifest(**values)
        _check_sizes(manifest, path)
    except (KeyError, TypeError) as error:
        raise InputError(f"damaged manifest: {error} is missing or malformed", path) from error
    return manifest


def _check_sizes(manifest: Manifest, path: Path) -> None:
    sequences = manifest.sequences
    expected = {OFFSETS: 8 * sequences, LENGTHS: 4 * sequences, HEADER_INDEX: 8 * (sequences + 1)}
    if manifest.clusters is not None:
        representatives = manifest.clusters.representatives
        if not 1 <= representatives <= sequences:
            raise InputError(
                f"damaged manifest: {representatives} representatives of {sequences} sequences", path
            )
        expected[CLUSTERS] = 8 * (representatives + 1)
        expected[MEMBERS] = 8 * (sequences - representatives)
    for name, size in expected.items():
        if manifest.parts[name].bytes != size:
            raise InputError(
                f"damaged manifest: {name} of {manifest.parts[name].bytes} bytes, {sequences} sequences "
                f"need {size}",
                path,
            )
    padded = manifest.parts[RESIDUES].bytes
    if sequences < 1 or padded % 4 or not manifest.residues <= padded <= manifest.residues + 3 * sequences:
        raise InputError(
            f"damaged manifest: {sequences} sequences, {manifest.residues} residues, {padded} bytes of them",
            path,
        )
