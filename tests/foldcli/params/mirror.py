"""A web server for the tests of `foldcli params fetch`, with the faults that real ones have."""

import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Mirror:
    """What is served at every path, and how.

    Args:
        content: of the file.
        etag: its entity tag, or None.
        ranges: whether parts are given.
        careless: give a part whatever If-Range says.
        shift: bytes by which a part begins late.
        refuse_ranges: answer every wish for a part with 416.
        drops: bytes of the body after which the connection of the first, second, … answer is cut.
        leaves: whether nobody listens any more once a connection is cut.
        hold_after: bytes of the body after which every answer stops coming, the connection staying open.
        headers: more headers of the answer.
        status: of every answer, where it is no file.
        length: Content-Length, where it is not the content's.
        requests: headers of the requests that came.
    """

    content: bytes = b""
    etag: str | None = '"one"'
    ranges: bool = True
    careless: bool = False
    shift: int = 0
    refuse_ranges: bool = False
    drops: list[int] = field(default_factory=list)
    leaves: bool = False
    hold_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    status: int | None = None
    length: int | None = None
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.released = threading.Event()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A new self-signed certificate of localhost, and its key."""
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-out", str(made), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


class QuietServer(ThreadingHTTPServer):
    """Clients that hang up are what it is for."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


def start(mirror: Mirror, certificate: tuple[Path, Path]) -> ThreadingHTTPServer:
    """Serve over HTTPS on a port of localhost, in threads; `mirror.url` says where."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.requests.append(dict(self.headers))
            first, total = self._first_byte(), len(mirror.content)
            if first and mirror.refuse_ranges:
                self.send_error(416)
                return
            self.send_response(mirror.status or (206 if first else 200))
            length = total - first if mirror.length is None else mirror.length
            self.send_header("Content-Length", str(length))
            if first:
                self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
            if mirror.etag is not None:
                self.send_header("ETag", mirror.etag)
            for name, value in mirror.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self._send(mirror.content[first:])

        def _first_byte(self) -> int:
            """Where the answer begins: at 0 unless a part was asked for and will be given."""
            asked = self.headers.get("Range", "")
            same = self.headers.get("If-Range") == mirror.etag or mirror.careless
            if not (asked and mirror.ranges and same):
                return 0
            return int(asked.removeprefix("bytes=").rstrip("-")) + mirror.shift

        def _send(self, body: bytes) -> None:
            cut = mirror.drops.pop(0) if mirror.drops else None
            self.wfile.write(body[: cut if cut is not None else mirror.hold_after])
            self.wfile.flush()
            if cut is not None:
                if mirror.leaves:
                    # a socket that is still polled goes on taking connections after it is closed
                    server.shutdown()
                    server.socket.close()
                self.connection.shutdown(socket.SHUT_RDWR)
            elif mirror.hold_after is not None:
                mirror.released.wait()

        def log_message(self, *_: object) -> None:
            pass

    server = QuietServer(("localhost", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    mirror.url = f"https://localhost:{server.server_port}/params.tar"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def start_proxy(tunnels: list[str]) -> ThreadingHTTPServer:
    """An HTTP proxy on a port of localhost; `tunnels` gets the hosts that it was asked to connect to."""

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            tunnels.append(self.path)
            host, port = self.path.split(":")
            with socket.create_connection((host, int(port))) as there:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=self._pass_on, args=(there, self.connection), daemon=True)
                back.start()
                self._pass_on(self.connection, there)
                back.join()

        def _pass_on(self, source: socket.socket, goal: socket.socket) -> None:
            try:
                while block := source.recv(1 << 16):
                    goal.sendall(block)
                goal.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    server = QuietServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server
