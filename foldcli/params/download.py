"""Resumable download of a large file over HTTPS; bytes of two versions of the file are never combined."""

import errno
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from foldcli.errors import OptionError
from foldcli.logs import logger
from foldcli.progress import Progress, progress_bar
from foldcli.units import format_bytes
from foldcli.version import VERSION
from msa.base.errors import MissingError
from msa.base.json_files import read_json, write_json

_TIMEOUT_SECONDS = 60
_MAX_PAUSE_SECONDS = 30
_CHUNK_BYTES = 1 << 20
# maximum size of a file whose size the server does not state; DeepMind's archive has 5.3 GB
_MAX_UNSTATED_BYTES = 10**10
# disk space to leave for other programs
_RESERVED_BYTES = 64 << 20
# HTTP statuses for which a retry may succeed
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}

_ADDRESS_REMEDY = "Is the address right? --url names a mirror, and --from an archive on this machine."
_CERTIFICATE_REMEDY = (
    "Nothing was downloaded. If your site's proxy inspects HTTPS connections, set SSL_CERT_FILE to "
    "its certificates."
)
_NETWORK_REMEDY = (
    "Is there a network connection, and does it need a proxy (set https_proxy)? --from reads an archive that "
    "was copied from another machine."
)
_RESUME_REMEDY = "Run the same command again to resume, if the server supports it."


class Unreachable(MissingError):
    """A file that cannot be downloaded, and for which another attempt would not help."""


class TransientError(Exception):
    """A network failure after which a retry may succeed."""


def check_disk_space(
    folder: Path,
    needed: int,
    files: str = "download and unpacked files",
    remedy: str = "Free some space, or name a folder on another disk.",
) -> None:
    """Raise MissingError, with a remedy, if a folder's disk has too few free bytes for these files."""
    free, needed = shutil.disk_usage(folder).free, needed + _RESERVED_BYTES
    if needed > free:
        raise MissingError(
            f"{folder}: {files} need about {format_bytes(needed)} of disk space, and "
            f"{format_bytes(free)} are free",
            remedy,
        )


def check_address(url: str) -> None:
    """Check the form of an address.

    Raises:
        ValueError: it has no host, an invalid port, or a character that is not allowed.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("it has a character that is not allowed")
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it has no host" if not parts.hostname else "port 0")


def check_source(url: str, has_checksum: bool) -> None:
    """Check the value of `--url`; without a checksum, anyone could forge a file that is sent over http.

    Raises:
        OptionError: the address cannot be used.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in ("https", "http"):
        raise OptionError(f"--url: expected an https address, got {url!r}; use --from for a file")
    try:
        check_address(url)
    except ValueError as error:
        raise OptionError(f"--url: {url!r} is not a valid address: {error}") from None
    if scheme == "http" and not has_checksum:
        raise OptionError("--url: a file sent over http could be forged; give --sha256, or use https")


class _SecureRedirects(HTTPRedirectHandler):
    """A redirect handler that refuses to go from https to http, where anyone could forge the answer."""

    def redirect_request(  # type: ignore[no-untyped-def]
        self, req, fp, code, msg, headers, newurl
    ) -> Request | None:
        try:
            check_address(newurl)
        except ValueError as error:
            message = f"{req.full_url} redirects to an address that is not valid: {error}"
            raise Unreachable(message, _ADDRESS_REMEDY) from error
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise Unreachable(
                f"{req.full_url} redirects to {newurl}, which is not encrypted",
                "Name another mirror with --url.",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_url(url: str, headers: dict[str, str], has_answered: bool) -> HTTPResponse:
    """Send a GET request and return the response with status 200, 206 or 416; its body is still unread.

    As in curl, https_proxy, http_proxy and no_proxy name proxies, and SSL_CERT_FILE and SSL_CERT_DIR name the
    certificates to trust instead of the system's.

    Args:
        url: an https or http URL.
        headers: additional request headers.
        has_answered: True if this server has answered before; a refused connection then counts as transient.

    Raises:
        Unreachable: the host or file does not exist, refuses the request, or cannot be trusted.
        TransientError: a retry may succeed.
    """
    opener = build_opener(HTTPSHandler(context=ssl.create_default_context()), _SecureRedirects())
    request = Request(url, headers={"User-Agent": f"foldcli/{VERSION}"} | headers)
    try:
        response: HTTPResponse = opener.open(request, timeout=_TIMEOUT_SECONDS)
        return response
    except HTTPError as error:
        if error.code == 416:
            return error  # type: ignore[return-value]
        message = f"{url}: the server says {error.code} {' '.join(error.reason.split())}"
        if error.code in _TRANSIENT_STATUSES:
            raise TransientError(message) from error
        raise Unreachable(message, _ADDRESS_REMEDY) from error
    except URLError as error:
        raise _connection_error(url, error.reason, has_answered) from error
    except (OSError, HTTPException) as error:
        raise TransientError(f"{url}: {_short_reason(error)}") from error
    except ValueError as error:
        raise Unreachable(
            f"{url} redirects to an address that is not valid: {error}", _ADDRESS_REMEDY
        ) from error


def _connection_error(url: str, reason: object, has_answered: bool) -> Exception:
    """Return the exception for a connection that could not be opened."""
    host = urlsplit(url).hostname or url
    if isinstance(reason, ssl.SSLCertVerificationError):
        message = f"{url}: the certificate of {host} is not trusted: {reason.verify_message}"
        return Unreachable(message, _CERTIFICATE_REMEDY)
    # urllib reports a proxy's refusal as a plain OSError
    if "Tunnel connection failed" in str(reason):
        return Unreachable(f"{url}: the proxy refuses: {reason}", _NETWORK_REMEDY)
    message = f"{url}: {_short_reason(reason)}"
    if isinstance(reason, socket.gaierror | ConnectionRefusedError) and not has_answered:
        return Unreachable(message, _NETWORK_REMEDY)
    return TransientError(message)


def _short_reason(error: object) -> str:
    """Return a few words that describe a network error."""
    if isinstance(error, TimeoutError):
        return f"no answer for {_TIMEOUT_SECONDS} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class RemoteFile:
    """One version of a file, as its server describes it.

    Args:
        length: size in bytes, or None if the server does not say.
        etag: strong entity tag, or None; a weak tag does not guarantee equal bytes and is ignored.
        last_modified: the header's text, or None.
        md5: MD5 of the whole file in base64, which Google Cloud Storage sends; None from other servers.
    """

    url: str
    length: int | None
    etag: str | None
    last_modified: str | None
    md5: str | None

    @classmethod
    def from_headers(cls, url: str, headers: Message, length: str | None = None) -> "RemoteFile":
        """Read a response's headers; `length` is that of the whole file if the response is partial."""
        etag = headers.get("ETag")
        # x-goog-hash: crc32c=AAAAAA==,md5=…; the header may be repeated, once for each hash
        hashes = ",".join(headers.get_all("x-goog-hash", [])).split(",")
        md5 = next((entry.strip()[4:] for entry in hashes if entry.strip().startswith("md5=")), None)
        strong_etag = etag if etag and not etag.startswith("W/") else None
        size = _parse_number(headers.get("Content-Length") if length is None else length)
        return cls(url, size, strong_etag, headers.get("Last-Modified"), md5)

    @property
    def validator(self) -> str | None:
        """The value of If-Range, which makes a server resume this version only."""
        return self.etag or self.last_modified


class PartialFile:
    """An unfinished download: the file `path`, and `path`.json, which records the version it is part of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._record = path.with_name(f"{path.name}.json")

    @property
    def size(self) -> int:
        """Number of bytes downloaded so far."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def remote_file(self, url: str) -> RemoteFile | None:
        """Return the version that the bytes belong to; None if it is unknown or has another URL."""
        if not self.size:
            return None
        try:
            remote = read_json(self._record, RemoteFile)
        except (OSError, ValueError):
            return None
        return remote if remote.url == url else None

    def start(self, remote: RemoteFile) -> IO[bytes]:
        """Discard earlier bytes, record the new version, and open the file for writing."""
        stream = self.path.open("wb", buffering=0)
        try:
            write_json(self._record, asdict(remote))
        except BaseException:
            stream.close()
            raise
        return stream

    def remove(self) -> None:
        """Delete the file and its record."""
        for path in (self.path, self._record):
            path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Flush the file's bytes to the disk."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())


def download(url: str, part: PartialFile, check_space: Callable[[int], None], retries: int) -> RemoteFile:
    """Download a file with a progress bar; see `Download`."""
    with progress_bar("downloading", "B") as progress:
        return Download(url, part, check_space, progress, retries).run()


@dataclass
class Download:
    """A download of one file, with retries.

    Args:
        partial_file: receives the bytes.
        check_space: called with the number of bytes still to be downloaded; raises an exception if they
            do not fit.
        progress: called with (bytes so far, bytes in total).
        retries: number of consecutive attempts that may end without progress.
    """

    url: str
    partial_file: PartialFile
    check_space: Callable[[int], None]
    progress: Progress
    retries: int
    _has_answered: bool = False

    def run(self) -> RemoteFile:
        """Download until the partial file is complete.

        Returns:
            The file, as the server described it.

        Raises:
            Unreachable: the server does not provide the file, or the retries are used up; the partial file
                stays.
            MissingError: the file does not fit on the disk.
        """
        furthest, futile_attempts = self.partial_file.size, 0
        while True:
            try:
                return self._attempt()
            except TransientError as error:
                futile_attempts = 0 if self.partial_file.size > furthest else futile_attempts + 1
                furthest = max(furthest, self.partial_file.size)
                if futile_attempts > self.retries:
                    message = f"{error}; {furthest:,} bytes were downloaded"
                    raise Unreachable(message, _RESUME_REMEDY) from error
                logger.warning("%s; trying again", error)
                if futile_attempts:
                    time.sleep(min(2 ** (futile_attempts - 1), _MAX_PAUSE_SECONDS))

    def _attempt(self) -> RemoteFile:
        remote, offset = self.partial_file.remote_file(self.url), self.partial_file.size
        if remote is not None and offset == remote.length:
            return remote
        headers = {"Accept-Encoding": "identity"}
        validator = remote.validator if remote is not None else None
        if validator:
            headers |= {"Range": f"bytes={offset}-", "If-Range": validator}
        with open_url(self.url, headers, self._has_answered) as response:
            self._has_answered = True
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise Unreachable(
                    f"{self.url}: the server sends {encoding}, which was not requested",
                    "Name another mirror with --url.",
                )
            if response.status == 200:
                if offset:
                    reason = _reason_to_restart(remote, response)
                    logger.warning("%s: %s; starting from the beginning", self.url, reason)
                remote, offset = RemoteFile.from_headers(self.url, response.headers), 0
                self._check_space_for(remote)
                stream = self.partial_file.start(remote)
            elif remote is not None and _continues(response, remote, offset):
                self._check_space_for(remote)
                stream = self.partial_file.path.open("ab", buffering=0)
            elif validator is None:
                raise TransientError(f"{self.url}: the server answers {response.status}")
            else:
                # the response has another version or offset, or its status is 416: request the whole file
                logger.warning("%s: the server cannot resume that file at byte %s", self.url, f"{offset:,}")
                self.partial_file.remove()
                return self._attempt()
            with stream:
                self._read_body(response, stream, offset, remote.length)
        self.partial_file.sync()
        return remote

    def _check_space_for(self, remote: RemoteFile) -> None:
        # bytes of another version will be overwritten, so they count as free space
        if remote.length is not None:
            self.check_space(max(remote.length - self.partial_file.size, 0))

    def _read_body(self, response: HTTPResponse, stream: IO[bytes], offset: int, length: int | None) -> None:
        """Append the response's body to a stream."""
        self.progress(offset, length)
        limit = _MAX_UNSTATED_BYTES if length is None else length
        while True:
            try:
                chunk = response.read1(_CHUNK_BYTES)
            except (OSError, HTTPException) as error:
                raise TransientError(f"{self.url}: the connection broke: {_short_reason(error)}") from error
            if not chunk:
                break
            if offset + len(chunk) > limit:
                self.partial_file.remove()
                stated = "the size that it stated" if length is not None else "without stating the size"
                message = f"{self.url}: the server sends more than {limit:,} bytes, {stated}"
                raise Unreachable(message, _ADDRESS_REMEDY)
            self._write(chunk, stream)
            offset += len(chunk)
            self.progress(offset, length)
        if length is not None and offset < length:
            raise TransientError(f"{self.url}: the connection broke at {offset:,} of {length:,} bytes")

    def _write(self, chunk: bytes, stream: IO[bytes]) -> None:
        remaining = memoryview(chunk)
        try:
            while remaining:
                # the stream is unbuffered, so it may write only a part
                remaining = remaining[stream.write(remaining) :]
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise MissingError(
                    f"no space left on the disk: {self.partial_file.path} has "
                    f"{self.partial_file.size:,} bytes",
                    f"Free some space. {_RESUME_REMEDY}",
                ) from error
            raise


def _continues(response: HTTPResponse, remote: RemoteFile, offset: int) -> bool:
    """Return True if a response has the rest of a file from an offset on.

    This is checked, because some servers implement If-Range wrongly.
    """
    unit, _, content_range = response.headers.get("Content-Range", "").partition(" ")
    extent, _, total = content_range.partition("/")
    first = extent.partition("-")[0]
    answered = RemoteFile.from_headers(remote.url, response.headers, total)
    return (
        (response.status, unit, _parse_number(first)) == (206, "bytes", offset)
        and answered.length in (remote.length, None)
        and (not answered.validator or answered.validator == remote.validator)
    )


def _reason_to_restart(remote: RemoteFile | None, response: HTTPResponse) -> str:
    """Return why the server sends the whole file although part of it was already downloaded."""
    if remote is None:
        return "the existing bytes are from another download"
    if remote.validator is None:
        return "the server did not identify the version of the existing bytes"
    unchanged = RemoteFile.from_headers(remote.url, response.headers) == remote
    return "the server cannot resume downloads" if unchanged else "the file on the server has changed"


def _parse_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
