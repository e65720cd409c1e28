"""`foldcli serve`: keep a database loaded, and search it for other processes."""

from pathlib import Path

import click

from foldcli.options import common as options


@click.command("serve")
@click.argument("db", type=options.PathType(), metavar="DB")
@click.option(
    "--socket",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Unix socket to listen on; created with mode 0600 and removed at the end.",
)
@options.device_option("the searches")
@options.threads_option
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for running requests to finish when the server stops.",
)
@click.option(
    "--max-request",
    type=click.FloatRange(0.01, 1024),
    default=16.0,
    show_default=True,
    metavar="MIB",
    help="Maximum size of a request; clients split larger ones.",
)
@options.logging_options
def command(db: str, path: Path, device: str, threads: int, drain: float, max_request: float) -> None:
    """Keep a target database loaded for searches by other processes.

    DB is a database from `foldcli createdb`, or a FASTA file or MMseqs2 database, converted once into
    $FOLDCLI_CACHE. The server keeps database, compiled kernels and GPU ready, and clients send it queries:

    \b
      foldcli serve uniref50 --socket /run/user/1000/fold.sock &
      foldcli search query.fasta --server /run/user/1000/fold.sock -o hits.m8

    Clients can connect once the server has logged "ready"; their requests take turns. SIGTERM, SIGINT,
    SIGUSR1 or SIGHUP stops the server: it refuses new requests, finishes running ones and exits with 0. A
    second signal aborts them.
    """
    from foldcli.server.server import ServerSettings
    from foldcli.server.service import Service

    Service(db, path, device, int(max_request * 2**20), ServerSettings(threads, drain)).run()
