"""A server in this process, on a free port, with two databases."""

import io
import json
import socket
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from foldcli.msa_server.app import AppSettings, MsaApp
from foldcli.msa_server.results import ResultFiles
from foldcli.msa_server.tickets import TicketQueue
from foldcli.msa_server.worker import SearchStages, Worker
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.targets.locks import TargetLocks
from tests.foldcli.exports.conftest import GB1, UBIQUITIN, Family, family  # noqa: F401

QUERY = f">101\n{UBIQUITIN}\n>102\n{GB1}\n"
TIMEOUT = 120.0


@dataclass
class Client:
    """A client of a server.

    Args:
        url: address of the server.
        headers: headers of all requests.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def call(self, path: str, data: Any = None, **headers: str) -> tuple[int, bytes]:
        """Send a request, with a form if there is data, and return status code and body."""
        body = urllib.parse.urlencode(data).encode() if isinstance(data, dict) else data
        request = urllib.request.Request(self.url + path, body, {**self.headers, **headers})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def submit(self, query: str = QUERY, mode: str = "env", kind: str = "msa") -> tuple[int, dict[str, Any]]:
        """Submit a ticket, and return status code and JSON."""
        code, body = self.call(f"/ticket/{kind}", {"q": query, "mode": mode})
        return code, json.loads(body)

    def state(self, ticket_id: str) -> str:
        code, body = self.call(f"/ticket/{ticket_id}")
        answer = json.loads(body)
        assert code == 200 and answer["id"] == ticket_id
        return str(answer["status"])

    def wait(self, ticket_id: str) -> str:
        """Return the state of a ticket once it is answered."""
        end = time.monotonic() + TIMEOUT
        while (state := self.state(ticket_id)) in ("PENDING", "RUNNING"):
            assert time.monotonic() < end
            time.sleep(0.02)
        return state

    def results(self, query: str = QUERY, mode: str = "env", kind: str = "msa") -> dict[str, str]:
        """Submit a ticket, wait for it, and return the files of its results."""
        code, answer = self.submit(query, mode, kind)
        assert code == 200 and self.wait(answer["id"]) == "COMPLETE"
        code, body = self.call(f"/result/download/{answer['id']}")
        assert code == 200
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            files = [(member.name, archive.extractfile(member)) for member in archive]
            return {name: file.read().decode() for name, file in files if file is not None}


@pytest.fixture(scope="session")
def databases(family: Family) -> Sequence[Path]:  # noqa: F811
    """Return a database of two families with species, and one with further members without."""
    path = family.path.with_name("environment.fasta")
    ends = ("AAAA", "GGGG", "LLLL")
    path.write_text("".join(f">env{end}\n{UBIQUITIN[:70]}{end}\n" for end in ends))
    return [family.path, path]


@pytest.fixture(scope="session")
def server_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for these tests only."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def stages(databases: Sequence[Path], server_cache: Path) -> Iterator[SearchStages]:
    """Open both databases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOLDCLI_CACHE", str(server_cache))
        first, second = map(str, databases)
        source = DatabaseSource(first, "cpu", (second,))
        database = source.open()
        yield SearchStages.of(database, open_searcher(source, database), server_cache / "features", 1)


@dataclass
class Server:
    """A running server.

    Attributes:
        folder: folder of its tickets and, while it is in maintenance, of the file that says so.
        queue: its tickets.
        url: its address.
    """

    folder: Path
    queue: TicketQueue
    url: str

    @property
    def client(self) -> Client:
        return Client(self.url)


class Starter:
    """Starts servers, and stops them at the end."""

    def __init__(self, stages: SearchStages) -> None:
        self._stages = stages
        self._locks = TargetLocks(threading.Event())
        self._stops: list[Any] = []

    def __call__(
        self,
        folder: Path,
        searches: bool = True,
        max_waiting: int = 1000,
        secrets: Mapping[str, str] = {},
        templates: TemplateStage | None = None,
    ) -> Server:
        """Start a server, with a thread that searches or without."""
        folder.mkdir(exist_ok=True)
        queue = TicketQueue(folder, max_waiting)
        results = ResultFiles(templates)
        worker = Worker(queue, self._stages, results, self._locks, 1e6)
        if searches:
            worker.start()
            worker.ready.result()
            self._stops.append(lambda: worker.stop(TIMEOUT))
        settings = AppSettings(1 << 16, secrets, folder / "maintenance", {})
        server = uvicorn.Server(
            uvicorn.Config(MsaApp(queue, worker, results, settings), log_config=None, lifespan="off")
        )
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(TIMEOUT)

        self._stops.append(stop)
        return Server(folder, queue, "http://127.0.0.1:%d" % listener.getsockname()[1])  # noqa: UP031

    def stop(self) -> None:
        for stop in self._stops:
            stop()


@pytest.fixture(scope="module")
def start(stages: SearchStages) -> Iterator[Starter]:
    """Return a function that starts a server."""
    starter = Starter(stages)
    yield starter
    starter.stop()


@pytest.fixture(scope="module")
def client(start: Starter, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Start a server for all tests that do not disturb it, and return a client."""
    return start(tmp_path_factory.mktemp("queue")).client
