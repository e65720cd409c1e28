"""`foldcli params`: fetch, list and verify parameter files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options.command import GroupedCommand
from foldcli.options.predict import models_type
from foldcli.params.archive import expected_sha256
from foldcli.params.download import check_source
from foldcli.params.manifest import LICENCE
from foldcli.params.openfold3 import DEEPMIND_TERMS, OPENFOLD3, PUBLISHED, openfold3_folder
from foldcli.params.openfold3 import LICENCE as OPENFOLD3_LICENCE
from foldcli.params.openfold3 import NAMES_BY_WHICH as _OPENFOLD3_NAMES
from foldcli.params.openfold3 import installed_parameters as installed_openfold3
from foldcli.params.parameters import (
    ARCHIVE_URL,
    NOTICE,
    SUFFIXES_BY_WHICH,
    ParameterSource,
    archive_url,
    default_folder,
    download_instructions,
    installed_parameters,
)
from foldcli.progress import progress_bar
from model.checkpoints.records import is_record_file
from msa.base.errors import InputError, MissingError

_DEFAULT_FOLDER = "$FOLDCLI_PARAMS, else $FOLDCLI_CACHE/params"

folder_option = click.option(
    "--params",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    show_default=_DEFAULT_FOLDER,
    help="Folder with the parameter files; it is only read.",
)


@click.group("params")
def command() -> None:
    """Fetch, list and verify parameter files of DeepMind and OpenFold3."""


@command.command("fetch", cls=GroupedCommand)
@click.option(
    "--which",
    type=click.Choice([*SUFFIXES_BY_WHICH, *_OPENFOLD3_NAMES]),
    default="ptm",
    show_default=True,
    help="ptm: monomer networks that predict the aligned error (PAE), which predictions prefer; monomer: "
    "those that do not; multimer: AlphaFold-Multimer v3, for complexes; all: all of these. multimer_v2 and "
    "multimer_v1 are older networks for complexes, which DeepMind keeps in separate archives. openfold3 is "
    "OpenFold3's all-atom network (1.4 GB), openfold3_p2 its earlier parameters.",
)
@click.option("--models", type=models_type, default="1,2,3,4,5", show_default=True, help="Models to keep.")
@click.option(
    "--dest",
    type=click.Path(file_okay=False, path_type=Path),
    show_default=f"{_DEFAULT_FOLDER}; for OpenFold3 its subfolder openfold3",
    help="Destination folder.",
)
@click.option(
    "--url",
    metavar="URL",
    show_default=f"DeepMind's archive: {ARCHIVE_URL}, or that of an older version",
    help="URL of the archive, for example on a mirror.",
)
@options.download_options
@options.overwrite_option
@options.logging_options
def fetch(
    which: str,
    models: tuple[int, ...],
    dest: Path | None,
    url: str | None,
    local_file: Path | None,
    sha256: str | None,
    retries: int,
    overwrite: bool,
) -> None:
    """Download parameters of DeepMind or OpenFold3, and install the requested ones.

    DeepMind's whole archive (5.3 GB) is downloaded, and removed once its files are installed. OpenFold3's
    checkpoint is converted once to safetensors. Run the same command again to resume an interrupted
    download. https_proxy, no_proxy and SSL_CERT_FILE set proxies and certificates.

    \b
      foldcli params fetch
      foldcli params fetch --which all --dest /shared/alphafold
      foldcli params fetch --url https://mirror.example.org/alphafold_params_2022-12-06.tar --sha256 HEX
      foldcli params fetch --from alphafold_params_2022-12-06.tar
      foldcli params fetch --which openfold3 --from of3-ob-2025-06-30-174k.pt
    """
    all_atom = _OPENFOLD3_NAMES.get(which)
    if all_atom is not None and "models" in options.given_options():
        raise click.UsageError(f"--models does not apply to --which {which}.")
    if url is not None and local_file is not None:
        raise click.UsageError("--url and --from exclude each other.")
    url = url or (archive_url(which) if all_atom is None else PUBLISHED[all_atom].url)
    check_source(url, has_checksum=local_file is not None or sha256 is not None)
    from foldcli.params.fetch import FetchSettings, fetch

    expected = None if sha256 is None else expected_sha256(sha256, str(local_file or url))
    if all_atom is not None:
        _fetch_openfold3(all_atom, dest, url, local_file, expected, retries, overwrite)
        return
    for line in NOTICE.splitlines():
        logger.info("%s", line)
    folder = dest or default_folder()
    settings = FetchSettings(folder, which, models, url, local_file, expected, retries, overwrite)
    written = fetch(settings)
    if not written:
        logger.info("%s: all files are already installed; --overwrite replaces them", folder)
        return
    for file in written:
        logger.info("%s", file)
    if folder != default_folder():
        path = folder.absolute()
        logger.info("use them with --params %s, or set FOLDCLI_PARAMS=%s", path, path)


def _fetch_openfold3(
    name: str,
    dest: Path | None,
    url: str,
    local_file: Path | None,
    sha256: str | None,
    retries: int,
    overwrite: bool,
) -> None:
    """Install a checkpoint of OpenFold3, unless it is installed; the arguments are those of `fetch`."""
    from foldcli.params.openfold3_import import fetch_parameters, import_parameters

    is_deepmind = local_file is not None and is_record_file(local_file)
    logger.info("%s", DEEPMIND_TERMS if is_deepmind else OPENFOLD3_LICENCE)
    folder = dest or openfold3_folder()
    if local_file is None:
        if not overwrite and name in {each.name for each in installed_openfold3(folder)}:
            logger.info("%s: %s is already installed; --overwrite replaces it", folder, name)
            return
        installed = fetch_parameters(name, folder, url, sha256, retries)
    else:
        installed = import_parameters(local_file, folder, sha256)
    logger.info("%s", installed.file)
    known = dest is None or dest == openfold3_folder()
    logger.info("use them with --params %s", OPENFOLD3 if known else folder.absolute())


@command.command("list")
@folder_option
@options.json_option
@options.logging_options
def list_files(folder: Path | None, as_json: bool) -> None:
    """List the parameter files that predictions find.

    Prints model, network, size in bytes, whether a checksum is recorded, and path of each file. The files
    themselves are not read; `params verify` reads them. If there are none, lists what can be fetched.
    """
    from foldcli.families.registry import FAMILIES

    # in reverse, since AlphaFold2's networks are asked last and listed first
    installed = [each for family in reversed(FAMILIES) for each in family.installed(folder)]
    if not installed and not as_json:
        _show_fetchable(folder or default_folder(), [each.fetchable for each in reversed(FAMILIES)])
        return
    rows = [
        {
            "model": each.model,
            "network": each.network,
            "bytes": each.file.stat().st_size,
            "sha256": each.sha256,
            "file": str(each.file),
        }
        for each in installed
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        checksum = "checksum known" if row["sha256"] else "no checksum"
        click.echo(
            f"{row['model'] or '-'}  {row['network']:19} {row['bytes']:>13,}  {checksum:14}  {row['file']}"
        )


def _show_fetchable(folder: Path, fetchable: Sequence[Mapping[str, str]]) -> None:
    """Print which networks `params fetch` can install into a folder that has none."""
    click.echo(f"no parameter files in {folder}; these can be fetched:\n")
    for which, networks in (item for each in fetchable for item in each.items()):
        default = " (default)" if which == "ptm" else ""
        click.echo(f"  foldcli params fetch --which {which:<11} {networks}{default}")
    click.echo(
        f"\nDeepMind's archive, {LICENCE}, a download of 5.3 GB; OpenFold3's checkpoint, Apache License 2.0, "
        "1.4 GB. `--params compact` needs no download."
    )


@command.command("verify")
@folder_option
@options.json_option
@options.logging_options
def verify_files(folder: Path | None, as_json: bool) -> None:
    """Verify every byte of the parameter files.

    Checks that keys, shapes and types match the network, and that the SHA-256 is the one that `params fetch`
    recorded. DeepMind's files from other sources have no recorded SHA-256, so the CRC-32 of each array is
    checked. `none` means that there is no checksum: import OpenFold3's checkpoint again to record one.
    """
    from foldcli.params.verify import verify

    all_atom = installed_openfold3(folder or openfold3_folder())
    sources = installed_parameters(folder or default_folder()) if all_atom else _installed(folder)
    with progress_bar("verifying", "B") as progress:
        results = verify([*sources, *all_atom], progress)
    if as_json:
        rows = [
            {"file": str(r.file), "checked": r.checksum_kind, "problem": r.problem or None} for r in results
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        for result in results:
            unknown = "ok" if result.checksum_kind != "none" else "unknown"
            click.echo(f"{'damaged' if result.problem else unknown:8} {result.checksum_kind:7} {result.file}")
    if damaged := [result for result in results if result.problem]:
        first = damaged[0]
        more = f" (and {len(damaged) - 1} more files are damaged)" if len(damaged) > 1 else ""
        which = " --which openfold3" if first.file in {each.file for each in all_atom} else ""
        remedy = f"foldcli params fetch{which} --overwrite replaces it"
        raise InputError(f"{first.problem}{more}; {remedy}", first.file)


@command.command("path")
@folder_option
@options.logging_options
def path(folder: Path | None) -> None:
    """Print the folder in which predictions find parameter files."""
    file = _installed(folder)[0].file
    assert file is not None
    click.echo(str(file.parent))


def _installed(folder: Path | None) -> list[ParameterSource]:
    """Return the parameter files in a folder, by default the one that predictions use."""
    folder = folder or default_folder()
    sources = installed_parameters(folder)
    if not sources:
        raise MissingError(f"no network parameters ({LICENCE}) in {folder}", download_instructions(folder))
    return sources
