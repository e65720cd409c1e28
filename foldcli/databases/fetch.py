"""A database from its address to a target database or structure library: download, check, unpack, build."""

import shutil
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO

from features.templates.library.build import build_library
from features.templates.library.library import LibraryManifest
from features.templates.library.settings import LibrarySettings
from foldcli.databases.build import describe_library
from foldcli.databases.sources import DownloadableDatabase
from foldcli.logs import logger
from foldcli.params.archive import file_digests
from foldcli.params.download import (
    PartialFile,
    TransientError,
    Unreachable,
    check_disk_space,
    download,
    open_url,
)
from foldcli.params.fetch import locked_work_folder
from foldcli.progress import Progress, progress_bar
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.database.build import BuildSettings as BuildSettings
from msa.database.build import build_database, build_from_mmseqs
from msa.database.manifest import DatabaseManifest
from msa.io.compression import open_input
from msa.io.molecules import PROTEIN, RNA, is_annotation

_MAX_METALINK_BYTES = 1 << 22
# end of the name of the file with the alignments of an HH-suite database
_ALIGNMENTS = "_a3m.ffdata"


@dataclass(frozen=True)
class DatabaseFetch:
    """A database to fetch.

    Attributes:
        output: folder of the target database or structure library.
        url: address of the file, that of the source or of a mirror.
        local_file: a copy of the file on this machine; None to download it.
        sha256: SHA-256 that the file must have (hex); None if it is not known.
    """

    source: DownloadableDatabase
    output: Path
    url: str
    local_file: Path | None
    sha256: str | None
    retries: int
    keep: bool
    build: BuildSettings

    @property
    def work(self) -> Path:
        """Folder of unfinished files, on the disk of the database."""
        return self.output.with_name(f"{self.output.name}.fetch")


def fetch_and_describe(fetch: DatabaseFetch) -> None:
    """Fetch a database, and log its size and its remarks; see `fetch_database`."""
    manifest = fetch_database(fetch)
    if isinstance(manifest, LibraryManifest):
        describe_library(manifest, fetch.output)
        return
    for remark in manifest.remarks():
        logger.warning("%s: %s", fetch.output, remark)
    sequences, residues = f"{manifest.sequences:,}", f"{manifest.residues:,}"
    logger.info("%s: %s sequences, %s residues", fetch.output, sequences, residues)


def fetch_database(fetch: DatabaseFetch) -> DatabaseManifest | LibraryManifest:
    """Fetch a database; an incomplete download is kept, and the next call resumes it.

    Raises:
        Unreachable: the file cannot be downloaded; see Download.
        InputError: the file is not the expected one, or holds no database.
        MissingError: the disk has too little space, or another process is fetching the same database.
    """
    fetch.output.parent.mkdir(parents=True, exist_ok=True)
    with locked_work_folder(fetch.work):
        part = PartialFile(fetch.work / f"{fetch.source.file_name}.part")
        if fetch.local_file is None:

            def check_space(remaining: int) -> None:
                whole = remaining + part.size
                _check_space(fetch, remaining + int(whole * fetch.source.expansion))

            download(fetch.url, part, check_space, fetch.retries)
        else:
            needed = int(fetch.local_file.stat().st_size * fetch.source.expansion)
            _check_space(fetch, needed)
        path = fetch.local_file or part.path
        try:
            _check_content(fetch, path)
        except InputError:
            if fetch.local_file is None:
                part.remove()
            raise
        unpacked = fetch.work / "unpacked"
        try:
            with progress_bar("createdb", "B") as progress:
                manifest = _build(fetch, path, unpacked, progress)
        finally:
            shutil.rmtree(unpacked, ignore_errors=True)
        if not fetch.keep:
            part.remove()
    return manifest


def _check_space(fetch: DatabaseFetch, needed: int) -> None:
    remedy = "Free some space, or name a database on another disk with -o."
    check_disk_space(fetch.output.parent, needed, "download and database", remedy)


def _check_content(fetch: DatabaseFetch, path: Path) -> None:
    """Compare the file with its SHA-256, or a download with the published MD5; say if there is none."""
    expected = fetch.sha256 or fetch.source.sha256.lower()
    md5 = "" if expected or fetch.local_file is not None else _published_md5(fetch)
    if not expected and not md5:
        logger.warning("%s: no checksum to compare with", path.name)
        return
    with progress_bar("checking", "B") as progress:
        sha256, found = file_digests(path, progress)
    kind, found_digest = ("SHA-256", sha256) if expected else ("MD5", found.hex())
    if found_digest != (expected or md5):
        after = "" if fetch.local_file is not None else "; the download was removed"
        where = fetch.local_file or fetch.url
        raise InputError(f"its {kind} is {found_digest} instead of {expected or md5}{after}", where)


def _published_md5(fetch: DatabaseFetch) -> str:
    """Return the MD5 (hex) in the source's Metalink; empty if there is none, or it cannot be read."""
    url = fetch.source.checksums
    if not url or fetch.url != fetch.source.url:
        return ""
    try:
        with open_url(url, {}, has_answered=True) as response:
            root = ElementTree.fromstring(response.read(_MAX_METALINK_BYTES))
    except (Unreachable, TransientError, OSError, ElementTree.ParseError) as error:
        logger.warning("%s: checksums cannot be read: %s", url, str(error).partition("\n")[0])
        return ""
    for file in root.iter():
        if file.tag.rpartition("}")[2] == "file" and file.get("name") == fetch.source.file_name:
            for digest in file.iter():
                if digest.tag.rpartition("}")[2] == "hash" and digest.get("type") == "md5":
                    return (digest.text or "").strip().lower()
    return ""


def _build(
    fetch: DatabaseFetch, path: Path, unpacked: Path, report: Progress
) -> DatabaseManifest | LibraryManifest:
    """Build the target database, or the structure library, from the file."""
    source, build = fetch.source, fetch.build
    if source.kind in ("mmseqs", "structures"):
        unpacked.mkdir()
        # the archive of structures has one in each file
        _unpack(path, source.member, unpacked)
        if source.kind == "structures":
            settings = LibrarySettings(threads=build.threads, overwrite=build.overwrite)
            return build_library([unpacked], fetch.output, settings, report)
        if not (unpacked / f"{source.member}.index").is_file():
            raise InputError(f"the archive has no MMseqs2 database {source.member}", path)
        return build_from_mmseqs(unpacked / source.member, fetch.output, build, report)
    if source.kind in ("seqres", "hhsuite"):
        unpacked.mkdir()
        proteins = unpacked / "proteins.fasta"
        with atomic_write(proteins, "wb") as stream:
            stream.writelines(_proteins(path) if source.kind == "seqres" else _rows(path))
        return build_database([proteins], fetch.output, build, report)
    build = replace(build, molecule=RNA if source.kind == "rna" else PROTEIN)
    return build_database([path], fetch.output, build, report)


def _proteins(path: Path) -> Iterator[bytes]:
    """Yield the lines of the records of the PDB's FASTA that are proteins."""
    is_protein = False
    with open_input(path) as stream:
        for line in stream:
            if line.startswith(b">"):
                is_protein = b"mol:protein" in line
            if is_protein:
                yield line


def _rows(path: Path) -> Iterator[bytes]:
    """Yield the rows of the alignments in an HH-suite database as FASTA, without gaps and consensus rows."""
    has_alignments = False
    for name, content in _members(path):
        if name.endswith(_ALIGNMENTS):
            has_alignments, is_row = True, False
            for line in content:
                # alignments end with a zero byte
                line = line.replace(b"\0", b"")
                if line[:1] in (b">", b"#"):
                    word = line[1:].split(maxsplit=1)[:1]
                    is_row = line[:1] == b">" and bool(word) and not word[0].endswith(b"_consensus")
                    is_row = is_row and not is_annotation(word[0].decode("utf-8", "replace"))
                elif is_row:
                    line = line.upper().translate(None, b"-.")
                if is_row:
                    yield line
    if not has_alignments:
        raise InputError(f"the archive has no alignments (*{_ALIGNMENTS})", path)


def _unpack(path: Path, prefix: str, folder: Path) -> None:
    """Unpack the files of a tar whose names have a prefix."""
    for name, content in _members(path):
        if name.startswith(prefix):
            with (folder / name).open("wb") as target:
                shutil.copyfileobj(content, target, 1 << 20)


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of a tar: their names without folders, and their contents."""
    try:
        with open_input(path, is_tar=True) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for item in archive:
                content = archive.extractfile(item) if item.isfile() else None
                if content is not None:
                    yield PurePosixPath(item.name).name, content
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"not a tar, or damaged: {error}", path) from None
