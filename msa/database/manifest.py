"""The manifest of a target database: counts, checksums and origin of the files in its folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from msa import alphabet
from msa.base.digests import json_sha256
from msa.base.errors import InputError, check_intact
from msa.base.json_files import Count, read_json, to_record
from msa.database.file_names import CLUSTERS as CLUSTERS
from msa.database.file_names import MANIFEST as MANIFEST
from msa.database.file_names import RESIDUES as RESIDUES
from msa.io.molecules import PROTEIN

FORMAT = "foldcli target database"
FORMAT_VERSION = 4
"""The newest version that can be read. One of RNA has version 4, a part of a split database of proteins
version 3, any other database with clusters version 2, and all others have version 1."""
PLAIN_VERSION, CLUSTERS_VERSION, PART_VERSION = 1, 2, 3
SPLIT = "split.json"
"""The description of a split database, next to the folders of its parts."""
OFFSETS, LENGTHS = "offsets.i64", "lengths.i32"
HEADERS, HEADER_INDEX = "headers.bin", "headers.idx"
FILES = (RESIDUES, OFFSETS, LENGTHS, HEADERS, HEADER_INDEX)
MEMBERS = "members.i64"
CLUSTER_FILES = (CLUSTERS, MEMBERS)
"""Additional files of a database with clusters."""
WHOLE_INDEX, SAMPLE, SAMPLE_LENGTHS = "whole.i64", "sample.u8", "sample_lengths.i32"
PART_FILES = (WHOLE_INDEX, SAMPLE, SAMPLE_LENGTHS)
"""Additional files of one part of a split database."""

_MAX_SPLIT_SEQUENCES = 2**31 - 1
_CHECKSUM = "manifest_sha256"

_REMARKS = {
    "empty_sequences": "records without a sequence, left out",
    "gap_characters": "gap characters ('-' or '.'), removed",
    "inner_stops": "stop codons ('*') inside sequences, replaced by X",
    "end_stops": "stop codons ('*') at the end of sequences, removed",
    "lower_case_letters": "lower-case letters, converted to upper case",
}

_require = partial(check_intact, "manifest")


@dataclass(frozen=True)
class DatabaseFile:
    """One file of a database.

    Attributes:
        bytes: its size.
        sha256: its checksum, in hexadecimal.
    """

    bytes: Count
    sha256: str


@dataclass(frozen=True)
class ClusterSummary:
    """The clusters of a database in which searches scan only cluster representatives.

    Attributes:
        representatives: number of representatives, which are the first sequences of the database.
        residues: total residues of the representatives.
        largest: number of sequences in the largest cluster.
        table: name, without its folder, of the table that the clusters were read from.
    """

    representatives: Count
    residues: Count
    largest: Count
    table: str


@dataclass(frozen=True)
class WholeDatabase:
    """The database that one part of a split database belongs to.

    Attributes:
        part: number of the part, from 1.
        parts: number of parts.
        sequences: number of sequences of all parts.
        representatives: number of cluster representatives of all parts; all sequences without clusters.
        residues: number of residues of all parts.
        checksums: SHA-256 of each file of the database before it was split; they identify its content.
    """

    part: Count
    parts: Count
    sequences: Count
    representatives: Count
    residues: Count
    checksums: dict[str, str]


class InputFile(TypedDict):
    """A file that a database was built from; `DatabaseManifest.inputs` says more."""

    name: str
    bytes: Count
    format: NotRequired[str]


class DatabaseManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of manifest.json.

    Attributes:
        sequences: number of sequences.
        residues: number of residues, without padding.
        masked_residues: number of residues with the soft-mask bit.
        length_quantiles: sequence length by quantile ("0", "0.05", "0.25", "0.5", "0.75", "0.95", "1").
        duplicate_ids: number of sequences with the id of an earlier one; they are kept.
        oddities: count of each unusual feature of the input, by the names of msa.io.fasta_blocks.ODDITIES.
        masking: parameters of the masking method by name; None if nothing was masked.
        inputs: name (without its folder), decompressed size as FASTA in bytes, and format if not FASTA, of
            each input, in order.
        built_by: versions of foldcli and of the libraries that matter.
        files: size and checksum of each file; `parts` in manifest.json.
        clusters: summary of the clusters; None if every sequence is searched.
        whole: the database that this is a part of; None if this is a whole database.
        molecule: kind of the sequences, PROTEIN or RNA.
    """

    sequences: Count
    residues: Count
    masked_residues: Count
    length_quantiles: dict[str, Count]
    duplicate_ids: Count
    oddities: dict[str, Count]
    masking: dict[str, str | int | float] | None
    inputs: list[InputFile]
    built_by: dict[str, str]
    files: dict[str, DatabaseFile] = msgspec.field(name="parts")
    clusters: ClusterSummary | None = None
    whole: WholeDatabase | None = None
    molecule: Literal["protein", "rna"] = PROTEIN

    @property
    def format_version(self) -> int:
        """The oldest version of the format that describes this database."""
        if self.molecule != PROTEIN:
            return FORMAT_VERSION
        if self.whole is not None:
            return PART_VERSION
        return PLAIN_VERSION if self.clusters is None else CLUSTERS_VERSION

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file; together they identify the database's content."""
        return {name: file.sha256 for name, file in self.files.items()}

    def remarks(self) -> list[str]:
        """Return one line for each unusual feature of the input, with its treatment and count."""
        counts = [(self.oddities.get(name, 0), text) for name, text in _REMARKS.items()]
        counts.append((self.duplicate_ids, "sequences with the id of an earlier one, kept"))
        return [f"{text}: {count:,}" for count, text in counts if count]

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file, with its checksum, as a JSON object."""
        layout = {
            "format": FORMAT,
            "format_version": self.format_version,
            "alphabet": alphabet.LETTERS,
            "mask_bit": alphabet.MASK_BIT,
            "pad_byte": alphabet.PAD,
        }
        content: dict[str, Any] = layout | msgspec.to_builtins(self)
        return content | {_CHECKSUM: json_sha256(content)}


def write_manifest(folder: Path, manifest: DatabaseManifest) -> None:
    """Write the manifest of a database folder.

    Raises:
        OSError: the file cannot be written.
    """
    (folder / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=2) + "\n")


def read_manifest(folder: Path) -> DatabaseManifest:
    """Read and check the manifest of a database folder.

    Raises:
        InputError: not a database, written by a newer version, damaged, or inconsistent.
    """
    path = folder / MANIFEST
    try:
        content = read_json(path)
    except FileNotFoundError:
        if (folder / SPLIT).is_file():
            raise InputError(_describe_split(folder), folder) from None
        raise InputError(f"not a target database: no {MANIFEST} in the folder", folder) from None
    except ValueError as error:
        raise InputError(f"damaged manifest: {error}", path) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        kind = content.get("format") if isinstance(content, dict) else None
        other = f", but of a {kind:.40}" if isinstance(kind, str) else ""
        raise InputError(f"not the manifest of a target database{other}", path)
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
    # databases of earlier versions have no checksum
    expected = content.pop(_CHECKSUM, None)
    if expected is not None and expected != json_sha256(content):
        raise InputError("damaged manifest: its content differs from its checksum", path)
    files: tuple[str, ...] = FILES
    if version == CLUSTERS_VERSION or "clusters" in content:
        files += CLUSTER_FILES
    if version == PART_VERSION or "whole" in content:
        files += PART_FILES
    try:
        manifest = to_record(content, DatabaseManifest)
        manifest = msgspec.structs.replace(manifest, files=select_files(manifest.files, files))
    except ValueError as error:
        raise InputError(f"damaged manifest: {error}", path) from error
    _check_sizes(manifest, path)
    return manifest


def select_files(parts: dict[str, DatabaseFile], names: Sequence[str]) -> dict[str, DatabaseFile]:
    """Return the entries of a manifest for some files; raises ValueError if one is missing."""
    for name in names:
        if name not in parts:
            raise ValueError(f"parts: {name} is missing")
    return {name: parts[name] for name in names}


def _check_sizes(manifest: DatabaseManifest, path: Path) -> None:
    """Raise InputError if counts and sizes contradict each other."""
    sequences, residues = manifest.sequences, manifest.residues
    expected = {OFFSETS: 8 * sequences, LENGTHS: 4 * sequences, HEADER_INDEX: 8 * (sequences + 1)}
    if manifest.clusters is not None:
        representatives = manifest.clusters.representatives
        reason = f"{representatives} representatives of {sequences} sequences"
        _require(1 <= representatives <= sequences, reason, path)
        expected[CLUSTERS] = 8 * (representatives + 1)
        expected[MEMBERS] = 8 * (sequences - representatives)
    if (whole := manifest.whole) is not None:
        is_part = 1 <= whole.part <= whole.parts and sequences <= whole.sequences <= _MAX_SPLIT_SEQUENCES
        counts = f"{sequences} of {whole.sequences} sequences"
        _require(is_part, f"part {whole.part} of {whole.parts} with {counts}", path)
        expected[WHOLE_INDEX] = 8 * sequences
    for name, size in expected.items():
        present = manifest.files[name].bytes
        _require(present == size, f"{name} has {present} bytes, {sequences} sequences need {size}", path)
    padded = manifest.files[RESIDUES].bytes
    fits = sequences >= 1 and not padded % 4 and residues <= padded <= residues + 3 * sequences
    counts = f"{sequences} sequences with {residues} residues"
    _require(fits, f"{counts} cannot have {padded} bytes of residues", path)


def part_name(part: int, parts: int) -> str:
    """Return the name of the folder of one part of a split database; `part` counts from 1."""
    return f"{part}-of-{parts}"


class _SplitDescription(msgspec.Struct, tag_field="format", tag="foldcli split database"):
    """The content of split.json; the counts are those of the whole database."""

    format_version: Literal[1]
    parts: Annotated[int, msgspec.Meta(ge=1, le=_MAX_SPLIT_SEQUENCES)]
    sequences: Count
    residues: Count


def write_split(folder: Path, whole: DatabaseManifest, parts: int) -> None:
    """Write the description of a split database into its folder.

    Raises:
        OSError: the file cannot be written.
    """
    content = _SplitDescription(1, parts, whole.sequences, whole.residues)
    (folder / SPLIT).write_text(json.dumps(msgspec.to_builtins(content), indent=2) + "\n")


def split_folders(folder: Path) -> list[Path]:
    """Return the folders of a split database's parts, in order; empty if it is not a split database.

    Raises:
        InputError: its description is damaged.
    """
    path = folder / SPLIT
    try:
        parts = read_json(path, _SplitDescription).parts
    except OSError:
        return []
    except ValueError as error:
        raise InputError(f"damaged description of a split database: {error}", path) from None
    return [folder / part_name(part, parts) for part in range(1, parts + 1)]


def _describe_split(folder: Path) -> str:
    """Return the error message for a split database where a single one is needed."""
    first, *_ = split_folders(folder)
    return (
        f"a split database: search each part, such as {first}, with --partial, and join the hits with "
        "foldcli merge-hits"
    )
