"""The SHA-256 that a user says an archive has: given, or read from what sha256sum wrote."""

from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from foldcli.params.connection import ConnectionBroke, Unreachable, ask
from msa.errors import InputError

_LONGEST = 1 << 20
"""Bytes of a list of checksums that are read."""


def expected_sha256(given: str, archive: str) -> str:
    """The checksum (hex) that an archive must have.

    Args:
        given: 64 hexadecimal digits, or a file or an https URL with lines as sha256sum writes them.
        archive: URL or path of the archive.

    Raises:
        InputError: there is no checksum of the archive.
        Unreachable: the URL cannot be read.
        OSError: the file cannot be read.
    """
    if _is_sha256(given):
        return given.lower()
    name = PurePosixPath(urlsplit(archive).path).name
    if urlsplit(given).scheme == "http":
        raise InputError("a checksum that comes over http could be anyone's; use https", given)
    if urlsplit(given).scheme != "https":
        if not Path(given).is_file():
            raise InputError("--sha256 is neither 64 hexadecimal digits nor a file that is there", given)
        return _of_lines(Path(given).read_text(encoding="utf-8", errors="replace"), name, given)
    try:
        with ask(given, {}, known=False) as answer:
            text = answer.read(_LONGEST).decode(errors="replace")
    except ConnectionBroke as error:
        raise Unreachable(str(error), "Try again, or give the SHA-256 itself.") from error
    return _of_lines(text, name, given)


def _of_lines(text: str, name: str, source: str) -> str:
    """The checksum in the line that names a file, or in the only line."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if PurePosixPath(line[-1].lstrip("*")).name == name]
    for line in named or (lines if len(lines) == 1 else []):
        if _is_sha256(line[0]):
            return line[0].lower()
    raise InputError(
        f"no SHA-256 of {name}: expected 64 hexadecimal digits, or lines as sha256sum writes", source
    )


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and not set(text.lower()) - set("0123456789abcdef")
