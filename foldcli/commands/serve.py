"""`foldcli serve`: keep databases loaded, and search them for other processes."""

import ipaddress
import re
from pathlib import Path
from typing import Any

import click

from foldcli.options import common as options
from foldcli.options import types
from foldcli.options.command import GroupedCommand, grouped
from foldcli.options.templates import library_option
from foldcli.paths import cache_dir, default_feature_cache

# a host or an IPv4 address, or an IPv6 address in brackets; then the port
_ADDRESS = re.compile(r"([\w.-]+|\[[^\[\]]+\]):(\d{1,5})", re.ASCII)


def _parse_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 address is in brackets."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) >= 2**16:
        raise ValueError(f"expected HOST:PORT or [IPV6]:PORT, got {text!r}")
    host = match[1]
    if host.startswith("["):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"expected an IPv6 address in the brackets of {text!r}") from None
    return host, int(match[2])


_listening_options = options.combine(
    click.option(
        "--socket",
        "path",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Unix socket to listen on; created with mode 0600 and removed at the end.",
    ),
    click.option(
        "--http",
        "address",
        type=types.ParsedType("HOST:PORT", _parse_address),
        help="Address for clients of ColabFold's MSA server; needs pip install 'foldcli[server]'.",
    ),
    options.number_option(
        "--drain",
        numbers=click.FloatRange(0),
        default=60.0,
        metavar="SECONDS",
        help="Time limit for running requests to finish when the server stops.",
    ),
    options.number_option(
        "--max-request",
        numbers=click.FloatRange(0.01, 1024),
        default=16.0,
        metavar="MIB",
        help="Maximum size of a request.",
    ),
)
_http_options = options.combine(
    click.option(
        "--queue",
        type=click.Path(file_okay=False, path_type=Path),
        show_default="$FOLDCLI_CACHE/msa_server",
        help="Folder of the tickets, which a restarted server continues.",
    ),
    options.cache_option,
    library_option("Also search this structure library, or without LIBRARY the one that comes with foldcli."),
    click.option(
        "--auth",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Serve only the users in this file, a line name:secret for each.",
    ),
    options.number_option(
        "--max-waiting",
        numbers=click.IntRange(1),
        default=1000,
        help="Maximum number of waiting sequences of a client, who may exceed it with a single ticket.",
    ),
    options.number_option(
        "--keep",
        numbers=click.FloatRange(0),
        default=7.0,
        metavar="DAYS",
        help="Time for which answered tickets are kept.",
    ),
)


@click.command("serve", cls=GroupedCommand)
@click.argument("databases", nargs=-1, required=True, type=types.PathType(), metavar="DB...")
@grouped("Server", _listening_options)
@grouped("With --http", _http_options)
@grouped("Device", options.device_option("the searches"), options.threads_option)
@grouped("Run", options.logging_options)
@click.pass_context
def command(
    context: click.Context,
    databases: tuple[str, ...],
    path: Path | None,
    address: tuple[str, int] | None,
    device: str,
    threads: int,
    drain: float,
    max_request: float,
    **option_values: Any,
) -> None:
    """Keep a target database loaded for searches by other processes.

    DB is a database from `foldcli createdb`, or a FASTA file or MMseqs2 database, converted once into
    $FOLDCLI_CACHE. The server keeps database, compiled kernels and GPU ready, and clients send it queries:

    \b
      foldcli serve uniref50 --socket /run/user/1000/fold.sock &
      foldcli search query.fasta --server /run/user/1000/fold.sock -o hits.m8

    Clients can connect once the server has logged "ready"; their requests take turns. SIGTERM, SIGINT,
    SIGUSR1 or SIGHUP stops the server: it refuses new requests, finishes running ones and exits with 0. A
    second signal aborts them.

    With --http, the server speaks the protocol of ColabFold's MSA server, so that ColabFold, Boltz, Chai,
    OpenFold3 and others can use it. Further databases are searched for clients that ask for environmental
    sequences. Tickets are on the disk: a server that was killed continues them.

    \b
      foldcli serve uniref50 --http 127.0.0.1:8080 &
      boltz predict job.yaml --use_msa_server --msa_server_url http://127.0.0.1:8080
    """
    if (path is None) == (address is None):
        raise click.UsageError("Give either --socket or --http.")
    request_bytes = int(max_request * 2**20)
    if path is not None:
        _refuse_http_options(context, databases, option_values)
        from foldcli.server.service import SocketService

        SocketService(databases[0], path, device, request_bytes, threads, drain).run()
        return
    assert address is not None
    options.distinct_databases(context, context.command.params[0], databases)
    from foldcli.msa_server.service import HttpService
    from foldcli.pipeline.prepare.template_stage import open_library
    from foldcli.pipeline.search.opening import DatabaseSource

    has_templates = "templates" in options.given_options(context)
    HttpService(
        DatabaseSource(databases[0], device, databases[1:]),
        address,
        queue=option_values["queue"] or cache_dir() / "msa_server",
        cache=option_values["cache"] or default_feature_cache(),
        templates=open_library(option_values["templates"], threads) if has_templates else None,
        secrets_file=option_values["auth"],
        max_request_bytes=request_bytes,
        max_waiting=option_values["max_waiting"],
        keep_seconds=option_values["keep"] * 86400,
        threads=threads,
        drain_seconds=drain,
    ).run()


def _refuse_http_options(
    context: click.Context, databases: tuple[str, ...], option_values: dict[str, Any]
) -> None:
    """Refuse what --socket does not support."""
    if len(databases) > 1:
        raise click.UsageError("--socket takes one database.")
    if name := next((name for name in option_values if name in options.given_options(context)), None):
        raise click.UsageError(f"--{name.replace('_', '-')} is for --http.")
