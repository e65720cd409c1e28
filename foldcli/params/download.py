"""A large file over HTTPS into a part file, continued where it broke off, never glued from two versions."""

import errno
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import IO

from foldcli.params.connection import ConnectionBroke, Unreachable, ask, said
from foldcli.params.part import Part, Version
from msa.errors import MissingError

Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_LONGEST_PAUSE = 30


class Download:
    """One file to be downloaded.

    Args:
        url: of the file.
        part: where its bytes go.
        check_room: called with the bytes that are still to come; raises where there is no room for them.
        notice: told in one line what happened on the way.
        progress: called with bytes there and bytes in all.
        retries: tries in a row that may end without getting further than any before.
    """

    def __init__(
        self,
        url: str,
        part: Part,
        check_room: Callable[[int], None],
        notice: Callable[[str], None],
        progress: Progress,
        retries: int,
    ) -> None:
        self._url, self._part, self._retries = url, part, retries
        self._check_room, self._notice, self._progress = check_room, notice, progress
        self._answered = False

    def run(self) -> Version:
        """Have the whole file in the part file.

        Returns:
            What it is, as the server described it.

        Raises:
            Unreachable: the server does not give it, or the connection broke too often; the part stays.
            MissingError: there is no room for it.
        """
        furthest, fruitless = self._part.size, 0
        while True:
            try:
                return self._attempt()
            except ConnectionBroke as error:
                fruitless = 0 if self._part.size > furthest else fruitless + 1
                furthest = max(furthest, self._part.size)
                if fruitless > self._retries:
                    raise Unreachable(
                        f"{error}; {furthest:,} bytes are there",
                        "The same command goes on from there, where the server can.",
                    ) from error
                self._notice(f"{error}; trying again")
                if fruitless:
                    time.sleep(min(2 ** (fruitless - 1), _LONGEST_PAUSE))

    def _attempt(self) -> Version:
        version, have = self._part.version(self._url), self._part.size
        if version is not None and have == version.length:
            return version
        headers = {"Accept-Encoding": "identity"}
        validator = version.validator if version is not None else None
        if validator:
            headers |= {"Range": f"bytes={have}-", "If-Range": validator}
        with ask(self._url, headers, self._answered) as answer:
            self._answered = True
            coding = answer.headers.get("Content-Encoding", "identity")
            if coding != "identity":
                raise Unreachable(
                    f"{self._url}: the server sends {coding}, which was not asked for",
                    "Name another mirror with --url.",
                )
            if answer.status == 200:
                if have:
                    self._notice(f"{self._url}: {_why_anew(version, answer)}; starting from the beginning")
                version, have = self._described(answer), 0
                self._room_for(version)
                stream = self._part.begin(version)
            elif version is not None and _continues(answer, version, have):
                self._room_for(version)
                stream = self._part.resume()
            elif validator is None:
                raise ConnectionBroke(f"{self._url}: the server answers {answer.status}")
            else:
                # a part of another file or from another byte, or none: asked for all, it has no choice
                self._notice(f"{self._url}: the server cannot go on at byte {have:,} of that file")
                self._part.remove()
                return self._attempt()
            with stream:
                self._read(answer, stream, have, version.length)
        self._part.sync()
        return version

    def _described(self, answer: HTTPResponse) -> Version:
        return Version.of_headers(self._url, _number(answer.headers.get("Content-Length")), answer.headers)

    def _room_for(self, version: Version) -> None:
        # bytes of another version make room for this one's
        if version.length is not None:
            self._check_room(max(version.length - self._part.size, 0))

    def _read(self, answer: HTTPResponse, stream: IO[bytes], have: int, length: int | None) -> None:
        """Append the body; it must be as long as was said."""
        self._progress(have, length)
        while True:
            try:
                chunk = answer.read1(_CHUNK)
            except (OSError, HTTPException) as error:
                raise ConnectionBroke(f"{self._url}: the connection broke: {said(error)}") from error
            if not chunk:
                break
            self._keep(chunk, stream)
            have += len(chunk)
            self._progress(have, length)
        if length is not None and have < length:
            raise ConnectionBroke(f"{self._url}: the connection broke at {have:,} of {length:,} bytes")

    def _keep(self, chunk: bytes, stream: IO[bytes]) -> None:
        left = memoryview(chunk)
        try:
            while left:
                # unbuffered, so that what was written is what is there; it may be less than was given
                left = left[stream.write(left) :]
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise MissingError(
                    f"no space left on the disk: {self._part.path} has {self._part.size:,} bytes",
                    "Make room and run the same command again; it goes on from there, where the server can.",
                ) from error
            raise


def _continues(answer: HTTPResponse, version: Version, have: int) -> bool:
    """Whether an answer goes on at a byte of a version: servers may get If-Range wrong."""
    unit, _, described = answer.headers.get("Content-Range", "").partition(" ")
    extent, _, total = described.partition("/")
    first = extent.partition("-")[0]
    now = Version.of_headers(version.url, _number(total), answer.headers)
    return (
        (answer.status, unit, _number(first)) == (206, "bytes", have)
        and now.length in (version.length, None)
        and (not now.validator or now.validator == version.validator)
    )


def _why_anew(version: Version | None, answer: HTTPResponse) -> str:
    """Why the whole file comes although a part of it is there."""
    if version is None:
        return "what is there is of another download"
    if version.validator is None:
        return "the server did not say of which version the part is"
    now = Version.of_headers(version.url, _number(answer.headers.get("Content-Length")), answer.headers)
    return "the server cannot go on in the middle" if now == version else "the server has another file now"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
