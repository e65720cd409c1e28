"""A web server for the tests of `foldcli params fetch`, with the faults of real servers."""

import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Mirror:
    """A server's one file, its behaviour, and the requests it has received.

    Args:
        content: content of the file, served at every path.
        etag: entity tag of the file, or None.
        ranges: True if range requests are supported.
        ignores_if_range: answer range requests regardless of If-Range.
        shift: number of bytes by which partial responses start too late.
        refuse_ranges: answer every range request with 416.
        drops: body sizes in bytes after which the connection of the first, second, … response is closed.
        stops_listening: accept no more connections after one was dropped.
        hold_after: body size in bytes after which every response stalls with the connection open, or None.
        headers: additional response headers.
        status: status of every response instead of 200 and 206, or None.
        states_length: send a Content-Length.
        length: Content-Length to send instead of the true one, or None.
        requests: headers of the received requests.
        url: URL of the file once the server is started.
    """

    content: bytes = b""
    etag: str | None = '"one"'
    ranges: bool = True
    ignores_if_range: bool = False
    shift: int = 0
    refuse_ranges: bool = False
    drops: list[int] = field(default_factory=list)
    stops_listening: bool = False
    hold_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    status: int | None = None
    states_length: bool = True
    length: int | None = None
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.released = threading.Event()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for localhost; return its path and that of its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
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
    command += ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


class QuietServer(ThreadingHTTPServer):
    """A server that does not print the errors of clients that close their connection early."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


def start(mirror: Mirror, certificate: tuple[Path, Path]) -> ThreadingHTTPServer:
    """Serve over HTTPS on a port of localhost, in threads, and set `mirror.url`."""
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
            if mirror.states_length:
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
            """Return the first byte of the response: 0 unless a range was requested and is served."""
            requested = self.headers.get("Range", "")
            same = self.headers.get("If-Range") == mirror.etag or mirror.ignores_if_range
            if not (requested and mirror.ranges and same):
                return 0
            return int(requested.removeprefix("bytes=").rstrip("-")) + mirror.shift

        def _send(self, body: bytes) -> None:
            cut = mirror.drops.pop(0) if mirror.drops else None
            self.wfile.write(body[: cut if cut is not None else mirror.hold_after])
            self.wfile.flush()
            if cut is not None:
                if mirror.stops_listening:
                    # a socket that is still polled accepts connections even after it was closed
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
    """Start an HTTP proxy on a port of localhost that appends the requested hosts to `tunnels`."""

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            tunnels.append(self.path)
            host, port = self.path.split(":")
            with socket.create_connection((host, int(port))) as remote:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=self._forward, args=(remote, self.connection), daemon=True)
                back.start()
                self._forward(self.connection, remote)
                back.join()

        def _forward(self, source: socket.socket, target: socket.socket) -> None:
            try:
                while block := source.recv(1 << 16):
                    target.sendall(block)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    server = QuietServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server
