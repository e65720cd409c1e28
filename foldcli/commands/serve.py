"""`foldcli serve`: a database that stays loaded, and answers searches over a socket."""

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
    help="The unix socket to listen at; made with mode 0600, removed at the end.",
)
@options.device_option("the searches run")
@options.threads_option
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="What running requests get to finish in when the server is told to stop.",
)
@click.option(
    "--max-request",
    type=click.FloatRange(0.01, 1024),
    default=16.0,
    show_default=True,
    metavar="MIB",
    help="Largest request that is taken. A client splits its queries into as many as it takes.",
)
@options.logging_options
def command(db: str, path: Path, device: str, threads: int, drain: float, max_request: float) -> None:
    """Keep a target database loaded for searches by other processes.

    DB is a database from `foldcli createdb`, or a FASTA file or MMseqs2 database, converted once into
    $FOLDCLI_CACHE. Database, compiled kernels and GPU stay in this process, and a search is a message to it:

    \b
      foldcli serve uniref50 --socket /run/user/1000/fold.sock &
      foldcli search query.fasta --server /run/user/1000/fold.sock -o hits.m8

    It answers once it says that it is ready. Clients take turns. SIGTERM or SIGINT ends it: no more requests
    are taken, those that run are finished, and the exit code is 0; a second signal does not wait for them.
    """
    from foldcli.server.server import ServerSettings
    from foldcli.server.service import Service

    Service(db, path, device, int(max_request * 2**20), ServerSettings(threads, drain)).run()
