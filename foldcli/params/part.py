"""An unfinished download: the bytes so far, and beside them which version of which file they are of."""

import json
import os
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from typing import IO

from msa.io.atomic import atomic_write


@dataclass(frozen=True)
class Version:
    """A file as a server describes it.

    Args:
        url: that was asked for.
        length: bytes, None where the server does not say.
        etag: the entity tag, None where there is none or a weak one, which does not promise equal bytes.
        last_modified: the date, as sent.
        md5: of the whole, base64, as Google Cloud Storage sends it; other servers do not.
    """

    url: str
    length: int | None
    etag: str | None
    last_modified: str | None
    md5: str | None

    @classmethod
    def of_headers(cls, url: str, length: int | None, headers: Message) -> "Version":
        """From an answer's headers; `length` is the whole file's, which a part's answer says elsewhere."""
        etag = headers.get("ETag")
        # x-goog-hash: crc32c=AAAAAA==,md5=…; it may be sent once for each
        hashes = ",".join(headers.get_all("x-goog-hash", [])).split(",")
        md5 = next((entry.strip()[4:] for entry in hashes if entry.strip().startswith("md5=")), None)
        strong = etag if etag and not etag.startswith("W/") else None
        return cls(url, length, strong, headers.get("Last-Modified"), md5)

    @property
    def validator(self) -> str | None:
        """What If-Range sends, so that a server continues this version alone."""
        return self.etag or self.last_modified


class Part:
    """The file `path`, and `path`.json, which says what it is a part of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path.with_name(f"{path.name}.json")

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def version(self, url: str) -> Version | None:
        """What the bytes are a part of; None where there are none, or of another URL, or nobody knows."""
        if not self.size:
            return None
        try:
            version = Version(**json.loads(self._state.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return version if version.url == url else None

    def begin(self, version: Version) -> IO[bytes]:
        """Open for the first byte of a version; bytes of others are gone before anything else happens."""
        stream = self.path.open("wb", buffering=0)
        try:
            with atomic_write(self._state) as state:
                json.dump(asdict(version), state)
        except BaseException:
            stream.close()
            raise
        return stream

    def resume(self) -> IO[bytes]:
        """Open behind the last byte."""
        return self.path.open("ab", buffering=0)

    def remove(self) -> None:
        for path in (self.path, self._state):
            path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Have the bytes on the disk."""
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())
