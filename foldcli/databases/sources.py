"""The table of sequence databases: a file that comes with foldcli, which users can extend by their own."""

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from foldcli.params.download import check_address
from msa.base.errors import InputError

BUILT_IN = Path(__file__).with_name("sources.toml")
KINDS = ("fasta", "rna", "seqres", "mmseqs", "hhsuite", "structures")


@dataclass(frozen=True)
class DownloadableDatabase:
    """A sequence database that can be fetched.

    Attributes:
        kind: a value of KINDS: FASTA of proteins or RNA, the PDB's FASTA with nucleic acids, or a tar of an
            MMseqs2 database, of an HH-suite database, or of structure files.
        checksums: address of a Metalink with the MD5 of the file; empty without.
        sha256: SHA-256 of the file; empty if it is not known.
        expansion: disk space that unpacking and building need, in sizes of the file.
    """

    name: str
    url: str
    kind: str = "fasta"
    description: str = ""
    member: str = ""
    checksums: str = ""
    sha256: str = ""
    expansion: float = 4.0

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.partition("?")[0].rstrip("/").rpartition("/")[2]


def read_sources(path: Path | None = None) -> dict[str, DownloadableDatabase]:
    """Return all known databases by name.

    Args:
        path: the user's table, whose entries come first and replace others of the same name.

    Raises:
        InputError: the table is damaged; names the entry.
    """
    own = {} if path is None else _read(path)
    return own | {name: each for name, each in _read(BUILT_IN).items() if name not in own}


def _read(path: Path) -> dict[str, DownloadableDatabase]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not valid TOML: {error}", path) from None
    return {name: _source(name, table, path) for name, table in tables.items()}


def _source(name: str, table: Any, path: Path) -> DownloadableDatabase:
    """Return an entry of a table; raise InputError if a key is unknown, missing or of the wrong type."""
    if not isinstance(table, dict):
        raise InputError(f"{name!r} is not a table: expected [{name}]", path)
    known = {each.name: each.type for each in fields(DownloadableDatabase) if each.name != "name"}
    for key, value in table.items():
        if key not in known:
            raise InputError(f"[{name}] has an unknown key {key!r}: known are {', '.join(known)}", path)
        expected = int | float if key == "expansion" else str
        if not isinstance(value, expected) or isinstance(value, bool):
            raise InputError(f"[{name}] {key}: unexpected value {value!r:.60}", path)
    if "url" not in table:
        raise InputError(f"[{name}] has no url", path)
    source = DownloadableDatabase(name, **table)
    if source.kind not in KINDS:
        raise InputError(f"[{name}] kind: expected {', '.join(KINDS)}, got {source.kind!r:.40}", path)
    if not 0 <= source.expansion < math.inf:
        raise InputError(f"[{name}] expansion: expected a number from 0, got {source.expansion}", path)
    if (source.kind == "mmseqs") != bool(source.member):
        raise InputError(f"[{name}] needs a member if its kind is mmseqs, and no other has one", path)
    for url in filter(None, (source.url, source.checksums)):
        try:
            check_address(url)
        except ValueError as error:
            raise InputError(f"[{name}] {url!r:.100} is not a valid address: {error}", path) from None
    return source
