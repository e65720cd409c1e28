"""The HTTP protocol of ColabFold's MSA server: tickets are submitted, asked for, and downloaded.

Clients take the state of a ticket from the JSON of every answer, whatever its status code.
"""

import asyncio
import base64
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import python_multipart  # noqa: F401 - starlette reads forms with it
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from foldcli.errors import describe, log_bug
from foldcli.logs import logger
from foldcli.msa_server.results import ResultFiles
from foldcli.msa_server.tickets import TICKET_ID, Kind, RateLimited, TicketJob, TicketQueue
from foldcli.msa_server.worker import Worker
from msa.base.errors import InputError

_CLIENT = "foldcli.client"
_REPEATED_SLASHES = re.compile("/{2,}")
_MAX_FIELDS = 100
# the state of a ticket that waits is sent after this time, or at its answer: clients ask less and know sooner
_HOLD_SECONDS = 2.0


@dataclass(frozen=True)
class AppSettings:
    """Settings of the protocol.

    Args:
        max_request_bytes: maximum size of a request.
        secrets: the passwords or tokens of the users by their names; empty to let everybody in.
        maintenance: new tickets are refused while this file exists.
        facts: facts about the server for /health.
    """

    max_request_bytes: int
    secrets: Mapping[str, str]
    maintenance: Path
    facts: Mapping[str, Any]


class MsaApp:
    """The ASGI application."""

    def __init__(
        self, queue: TicketQueue, worker: Worker, results: ResultFiles, settings: AppSettings
    ) -> None:
        self._queue, self._worker, self._results, self._settings = queue, worker, results, settings
        self._answers: Counter[str] = Counter()
        self._routes = Starlette(
            routes=[
                Route("/ticket/msa", self._submit, methods=["POST"]),
                Route("/ticket/pair", self._submit, methods=["POST"]),
                Route("/ticket/{ticket}", self._state),
                Route("/result/download/{ticket}", self._download),
                Route("/template/{names}", self._template),
                Route("/health", self._health),
                Route("/metrics", self._metrics),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if its user is known."""
        app: Any = self._routes
        if scope["type"] == "http":
            # clients append paths to addresses that may end with a slash
            path = _REPEATED_SLASHES.sub("/", scope["path"])
            address = scope["client"][0] if scope["client"] else "unknown"
            user = self._user(Headers(scope=scope)) if self._settings.secrets else address
            scope = {**scope, "path": path, _CLIENT: user}
            if user is None and path != "/health":
                # without JSON, which clients take as ERROR
                app = PlainTextResponse("Unauthorized\n", 401, {"WWW-Authenticate": 'Basic realm="foldcli"'})
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            logger.warning("a request of %s was dropped, as the server stops", scope.get(_CLIENT))
        except Exception as error:
            log_bug(error)
            raise

    def _user(self, headers: Headers) -> str | None:
        """Return the name of the user whose password or token a request has; None if it has none."""
        kind, _, secret = headers.get("authorization", "").partition(" ")
        name = ""
        if kind.lower() == "basic":
            try:
                credentials = base64.b64decode(secret)
            except ValueError:
                return None
            try:
                text = credentials.decode()
            except UnicodeDecodeError:
                # the encoding of Python's requests, and so of Boltz
                text = credentials.decode("latin-1")
            name, _, secret = text.partition(":")
        elif kind.lower() != "bearer":
            secret = headers.get("x-api-key", "")
        matching = [
            user
            for user, expected in self._settings.secrets.items()
            if compare_digest(secret.encode(), expected.encode()) and name in ("", user)
        ]
        return matching[0] if matching else None

    def _refuse(self, status: str, reason: str, code: int) -> Response:
        """Return the answer to a ticket that is not taken."""
        self._answers[status] += 1
        return JSONResponse({"status": status, "reason": reason}, code)

    async def _submit(self, request: Request) -> Response:
        """Add a ticket."""
        limit, length = self._settings.max_request_bytes, request.headers.get("content-length")
        if length is None:
            return self._refuse("ERROR", "the request does not tell its length", 411)
        try:
            if int(length) > limit:
                # clients read an answer only once they have sent everything
                async for _ in request.stream():
                    pass
                return self._refuse("ERROR", f"the request has {length} bytes; the limit is {limit}", 413)
            query, mode = await _read_form(request, limit)
        except ClientDisconnect:
            return Response(status_code=400)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if self._settings.maintenance.exists():
            return self._refuse("MAINTENANCE", "new tickets are not taken at the moment", 503)
        kind = cast(Kind, request.url.path.rpartition("/")[2])
        job = TicketJob(kind, mode, query, request.scope[_CLIENT], time.time())
        return await run_in_threadpool(self._enqueue, job)

    def _enqueue(self, job: TicketJob) -> Response:
        """Add a ticket; in a thread of its own, since it is written to the disk."""
        ticket_id = self._worker.ticket_id(job)
        try:
            state = self._queue.submit(ticket_id, job)
        except InputError as error:
            self._answers["ERROR"] += 1
            return JSONResponse({"id": ticket_id, "status": "ERROR", "reason": str(error)})
        except RateLimited as error:
            return self._refuse("RATELIMIT", str(error), 429)
        except OSError as error:
            logger.error("%s", describe(error))
            return self._refuse("MAINTENANCE", "the ticket cannot be written", 503)
        self._answers[state] += 1
        return JSONResponse({"id": ticket_id, "status": state})

    async def _state(self, request: Request) -> Response:
        """Return the state of a ticket."""
        ticket_id = request.path_params["ticket"]
        if not TICKET_ID.fullmatch(ticket_id):
            return PlainTextResponse("Invalid ID\n", 400)
        if (ticket := self._queue.find(ticket_id)) is not None:
            answered = asyncio.wrap_future(ticket.answered)
            await asyncio.wait([answered], timeout=_HOLD_SECONDS)
            # the answer may come after this thread's end
            answered.cancel()
        content = {"id": ticket_id, "status": self._queue.state(ticket_id)}
        return JSONResponse(content, headers={"Cache-Control": "no-cache, no-store"})

    async def _download(self, request: Request) -> Response:
        """Return the results of a ticket."""
        ticket_id = request.path_params["ticket"]
        if not TICKET_ID.fullmatch(ticket_id):
            return PlainTextResponse("Invalid ID\n", 400)
        if (state := self._queue.state(ticket_id)) != "COMPLETE":
            return PlainTextResponse(f"the ticket is {state}, not COMPLETE\n", 400)
        return FileResponse(
            self._queue.result(ticket_id),
            media_type="application/octet-stream",
            filename=f"mmseqs_results_{ticket_id}.tar.gz",
            headers={"Cache-Control": "private, max-age=3600"},
        )

    async def _template(self, request: Request) -> Response:
        """Return the structures of templates."""
        names = request.path_params["names"].split(",")
        try:
            archive = await run_in_threadpool(self._results.template_archive, names)
        except InputError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return Response(archive, media_type="application/octet-stream")

    async def _health(self, request: Request) -> Response:
        """Return whether tickets are taken, and facts about the server."""
        in_maintenance = self._settings.maintenance.exists()
        status = "maintenance" if in_maintenance else "ok"
        content = {"status": status, "waiting": len(self._queue.waiting()), **self._settings.facts}
        return JSONResponse(content, 503 if in_maintenance else 200)

    async def _metrics(self, request: Request) -> Response:
        """Return counts in Prometheus's text format."""
        waiting = self._queue.waiting()
        oldest = max((time.time() - ticket.job.submitted for ticket in waiting), default=0.0)
        lines = [
            *(
                f'foldcli_submissions_total{{status="{status}"}} {count}'
                for status, count in sorted(self._answers.items())
            ),
            f"foldcli_waiting_tickets {len(waiting)}",
            f"foldcli_waiting_sequences {sum(len(ticket.unsearched) for ticket in waiting)}",
            f"foldcli_oldest_ticket_seconds {oldest:.3f}",
            f"foldcli_searched_sequences_total {self._worker.searched}",
            f"foldcli_search_seconds_total {self._worker.seconds:.3f}",
        ]
        return PlainTextResponse("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")


async def _read_form(request: Request, limit: int) -> tuple[str, str]:
    """Return the sequences and the mode of a ticket."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        async with request.form(max_fields=_MAX_FIELDS, max_part_size=limit) as form:
            query = form.get("q", "")
            data = await query.read() if isinstance(query, UploadFile) else query.encode()
            return data.decode("utf-8", "replace"), str(form.get("mode", ""))
    # whatever its type: Boltz with an API key calls its forms JSON
    text = (await request.body()).decode("utf-8", "replace")
    fields = parse_qs(text, max_num_fields=_MAX_FIELDS)
    return fields.get("q", [""])[0], fields.get("mode", [""])[0]
