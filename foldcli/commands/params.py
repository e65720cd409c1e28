"""`foldcli params`: fetch DeepMind's parameter files, and see which are there and whole."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from foldcli.options import common as options
from foldcli.options.predict import models_type
from foldcli.params.published import ARCHIVE, LICENCE, NOTICE

if TYPE_CHECKING:
    from foldcli.params.parameters import ParameterSource

_FOLDER = "$FOLDCLI_PARAMS, else $FOLDCLI_CACHE/params"

folder_option = click.option(
    "--params",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    show_default=_FOLDER,
    help="Folder with the files; it is only read.",
)


@click.group("params")
def command() -> None:
    """Fetch, list and verify DeepMind's parameter files."""


@command.command("fetch")
@click.option(
    "--which",
    type=click.Choice(["ptm", "monomer", "all"]),
    default="ptm",
    show_default=True,
    help="Networks with a head for the aligned error (ptm, what predictions take first), without, or both.",
)
@click.option("--models", type=models_type, default="1,2,3,4,5", show_default=True, help="Models to keep.")
@click.option(
    "--dest",
    type=click.Path(file_okay=False, path_type=Path),
    show_default=_FOLDER,
    help="Where the files go.",
)
@click.option("--url", default=ARCHIVE, show_default=True, help="The archive; a mirror's, for example.")
@click.option(
    "--from",
    "local",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="TAR",
    help="An archive that is on this machine already; nothing is downloaded, and it stays.",
)
@click.option(
    "--sha256",
    metavar="HEX|FILE|URL",
    help="SHA-256 that the archive must have; or a file or URL that sha256sum wrote, such as a mirror's.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Tries in a row that may get no further before the download is given up.",
)
@options.overwrite_option
@options.logging_options
def fetch(
    which: str,
    models: tuple[int, ...],
    dest: Path | None,
    url: str,
    local: Path | None,
    sha256: str | None,
    retries: int,
    overwrite: bool,
) -> None:
    """Download DeepMind's parameters and unpack those that are wanted.

    The archive has 5.3 GB, whatever is kept of it; it is removed when all is in its place. A download that
    broke off, or was interrupted, goes on where it was when the same command runs again. Proxies and
    certificates are taken from https_proxy, no_proxy and SSL_CERT_FILE.

    \b
      foldcli params fetch
      foldcli params fetch --which all --dest /shared/alphafold
      foldcli params fetch --url https://mirror.example.org/alphafold_params_2022-12-06.tar --sha256 HEX
      foldcli params fetch --from alphafold_params_2022-12-06.tar
    """
    scheme = urlsplit(url).scheme
    if scheme not in ("https", "http"):
        raise click.UsageError(f"--url: expected an https address, got {url!r}; a file goes with --from")
    if scheme == "http" and local is None and sha256 is None:
        raise click.UsageError("--url: what comes over http could be anyone's; give --sha256, or use https")
    from foldcli.logs import logger
    from foldcli.params.checksums import expected_sha256
    from foldcli.params.fetch import FetchSettings, Ui, fetch
    from foldcli.params.parameters import default_folder
    from foldcli.progress import progress_bar

    for line in NOTICE.splitlines():
        logger.info("%s", line)
    folder = dest or default_folder()
    expected = expected_sha256(sha256, str(local or url)) if sha256 is not None else None
    settings = FetchSettings(folder, which, models, url, local, expected, retries, overwrite)
    made = fetch(
        settings, Ui(lambda line: logger.warning("%s", line), lambda title: progress_bar(title, "B"))
    )
    if not made:
        logger.info("%s: all files are there; --overwrite makes them anew", folder)
        return
    for file in made:
        logger.info("%s", file)
    if folder != default_folder():
        place = folder.absolute()
        logger.info("use them with --params %s, or set FOLDCLI_PARAMS=%s", place, place)


@command.command("list")
@folder_option
@options.json_option
@options.logging_options
def list_files(folder: Path | None, as_json: bool) -> None:
    """List the parameter files that predictions find.

    A line a file: model, network, bytes, whether its checksum is known, path. Nothing is read but their
    sizes; `params verify` reads them.
    """
    import json

    from foldcli.params.manifest import read_manifest

    rows = []
    for source in _found(folder):
        assert source.file is not None
        record = read_manifest(source.file.parent).files.get(source.file.name)
        rows.append(
            {
                "model": source.number,
                "network": source.config_name,
                "bytes": source.file.stat().st_size,
                "sha256": record.sha256 if record else None,
                "file": str(source.file),
            }
        )
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        known = "checksum known" if row["sha256"] else "no checksum"
        click.echo(f"{row['model']}  {row['network']:12} {row['bytes']:>13,}  {known:14}  {row['file']}")


@command.command("verify")
@folder_option
@options.json_option
@options.logging_options
def verify_files(folder: Path | None, as_json: bool) -> None:
    """Read every parameter file and compare it with what is known of it.

    Keys, shapes and types must be the network's, and the SHA-256 the one taken when the file was unpacked
    here; a file that `params fetch` did not unpack is compared with the CRC-32 of its own arrays.
    """
    import json

    from foldcli.params.verify import verify
    from foldcli.progress import progress_bar
    from msa.errors import InputError

    with progress_bar("verifying", "B") as progress:
        results = verify(_found(folder), progress)
    if as_json:
        rows = [{"file": str(r.file), "checked": r.checked, "problem": r.problem or None} for r in results]
        click.echo(json.dumps(rows, indent=2))
    else:
        for result in results:
            click.echo(f"{'damaged' if result.problem else 'ok':8} {result.checked:7} {result.file}")
    if wrong := [result for result in results if result.problem]:
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more files are damaged)" if len(wrong) > 1 else ""
        raise InputError(f"{first.problem}{more}; foldcli params fetch --overwrite makes it anew", first.file)


@command.command("path")
@folder_option
@options.logging_options
def path(folder: Path | None) -> None:
    """Print the folder in which predictions find parameter files."""
    file = _found(folder)[0].file
    assert file is not None
    click.echo(str(file.parent))


def _found(folder: Path | None) -> "list[ParameterSource]":
    """The files of a folder, or of the default.

    Raises:
        MissingError: there are none.
    """
    from foldcli.params.parameters import default_folder, how_to_get, installed
    from msa.errors import MissingError

    folder = folder or default_folder()
    found = installed(folder)
    if not found:
        raise MissingError(f"no network parameters ({LICENCE}) in {folder}", how_to_get(folder))
    return found
