"""The process of an MSA server: load the databases, continue the queue, answer HTTP requests."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache as cached
from functools import partial
from pathlib import Path
from threading import Event

import uvicorn

from foldcli.errors import ExitCode
from foldcli.logs import logger
from foldcli.msa_server.app import AppSettings, MsaApp
from foldcli.msa_server.results import ResultFiles
from foldcli.msa_server.tickets import TicketQueue
from foldcli.msa_server.worker import SearchStages, Worker
from foldcli.paths import make_writable_folder
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.search.opening import DatabaseSource, open_searcher
from foldcli.pipeline.search.search_process import SearchProcess
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.process_state import allow_open_files, exit_at_once, on_stop_signals
from foldcli.server.service import (
    device_name,
    quiet_stop_before_ready,
    raise_failures,
    verify_in_background,
)
from foldcli.version import VERSION
from msa.base.errors import InputError
from msa.base.hardware import has_nvidia_hardware
from msa.gpu.device.devices import GpuUnavailable

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# of a GPU's free memory, for the searches
_GPU_SHARE = 0.9
# connections that wait for the server to accept them
_BACKLOG = 2048


@dataclass(frozen=True)
class HttpService:
    """A server process.

    Args:
        cache: folder of the feature cache, which keeps the alignments.
        templates: the library that is searched for templates; None for none.
        secrets_file: file with a line `name:secret` for each user; None to let everybody in.
        max_request_bytes: maximum size of a request.
        max_waiting: largest number of waiting sequences of a client.
        keep_seconds: time for which answered tickets are kept.
        threads: CPU threads of a search.
        drain_seconds: time limit for the running batch to finish when the server stops.
    """

    source: DatabaseSource
    address: tuple[str, int]
    queue: Path
    cache: Path
    templates: TemplateStage | None
    secrets_file: Path | None
    max_request_bytes: int
    max_waiting: int
    keep_seconds: float
    threads: int
    drain_seconds: float

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            InputError: the address or the queue is in use, or a file is invalid.
            MissingError: there is no such database, or the requested GPU cannot be used.
            Exception: the error that stopped the engine.
        """
        allow_open_files()
        with (
            quiet_stop_before_ready(),
            _bind(self.address) as listener,
            TargetLocks(Event()) as locks,
        ):
            secrets = {} if self.secrets_file is None else read_secrets(self.secrets_file)
            if not secrets and self.address[0] not in _LOOPBACK:
                logger.warning("everybody who can reach %s can search: see --auth", self.address[0])
            make_writable_folder(self.queue / "tickets")
            if not locks.try_acquire(self.queue / "server.lock"):
                raise InputError("another server uses this queue", self.queue)
            logger.info("loading %s", " ".join((self.source.db, *self.source.others)))
            stages = self._open()
            queue = TicketQueue(self.queue / "tickets", self.max_waiting)
            results = ResultFiles(self.templates)
            worker = Worker(queue, stages, results, locks, self.keep_seconds)
            worker.start()
            worker.ready.result()
            self._serve(listener, queue, stages, worker, results, secrets)
            worker.stop(self.drain_seconds)
            raise_failures([worker.failure])
            logger.info("stopped")

    def _open(self) -> SearchStages:
        """Open the databases; a process searches them, so that requests do not wait for its Python."""
        device = self.source.device
        if device != "cpu" and not has_nvidia_hardware():
            if device != "auto":
                raise GpuUnavailable("this machine has no NVIDIA GPU")
            device = "cpu"
        database = self.source.open()
        path, *others = (str(each.path) for each in (database, *database.companions))
        process = SearchProcess(path, device, _GPU_SHARE, others, many_queries=True)
        searcher = process.open(database, cached(partial(open_searcher, self.source, database, _GPU_SHARE)))
        return SearchStages.of(database, searcher, self.cache, self.threads)

    def _serve(
        self,
        listener: socket.socket,
        queue: TicketQueue,
        stages: SearchStages,
        worker: Worker,
        results: ResultFiles,
        secrets: dict[str, str],
    ) -> None:
        """Answer requests until a signal, or until the engine or a database fails."""
        databases = [stages.database, *stages.database.companions]
        names = [self.source.db, *self.source.others]
        facts = {
            "foldcli": VERSION,
            "databases": names,
            "sequences": sum(each.manifest.sequences for each in databases),
            "device": device_name(stages.drives_gpus, self.source.device),
        }
        settings = AppSettings(self.max_request_bytes, secrets, self.queue / "maintenance", facts)
        server = _Server(
            uvicorn.Config(
                MsaApp(queue, worker, results, settings),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                backlog=_BACKLOG,
                timeout_graceful_shutdown=max(1, round(self.drain_seconds)),
            )
        )

        for name in ("uvicorn", "asyncio"):
            # their messages have the form of all others, such as JSON
            library = logging.getLogger(name)
            library.handlers, library.propagate = logger.handlers, False

        def stop(*_: object) -> None:
            server.should_exit = True

        def stop_or_exit(*_: object) -> None:
            if server.should_exit:
                exit_at_once(ExitCode.DONE)
            stop()

        on_stop_signals(stop_or_exit)
        listener.listen(_BACKLOG)
        host, port = listener.getsockname()[:2]
        logger.info(
            "ready: http://%s:%d serves %s, %d sequences, on %s; %d tickets wait",
            f"[{host}]" if ":" in host else host, port, " ".join(names), facts["sequences"],
            facts["device"], len(queue.waiting()),
        )  # fmt: skip
        verifications = [verify_in_background(each) for each in databases]
        for failure in (worker.failure, *verifications):
            failure.add_done_callback(stop)
        server.run([listener])
        raise_failures(verifications)


class _Server(uvicorn.Server):
    """uvicorn's server without its handling of signals, which would end the process with their exit codes."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the service."""
        yield


@contextlib.contextmanager
def _bind(address: tuple[str, int]) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"--http {address[0]}:{address[1]}: {reason}") from None
        yield listener


def read_secrets(path: Path) -> dict[str, str]:
    """Return the password or token of each user from lines `name:secret`; `#` begins a comment line.

    Raises:
        InputError: a line has another form or a user again, or there are none.
    """
    secrets: dict[str, str] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            name, _, secret = (part.strip() for part in line.decode().partition(":"))
        except UnicodeDecodeError:
            raise InputError("not UTF-8", path, number) from None
        if not (name and secret):
            raise InputError("expected name:secret", path, number)
        if name in secrets:
            raise InputError(f"{name!r} has a line already", path, number)
        secrets[name] = secret
    if not secrets:
        raise InputError("no line name:secret", path)
    return secrets
