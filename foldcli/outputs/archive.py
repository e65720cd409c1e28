"""NAME.result.zip: the files of a finished target in one archive."""

import zipfile

from foldcli.outputs.layout import TargetFiles
from msa.base.atomic import atomic_write


def write_archive(files: TargetFiles, done: str) -> None:
    """Write the archive of a target, replacing an older one.

    Args:
        files: the target's files, all of which exist except done.json.
        done: text of done.json, which is written to the folder after the archive.
    """
    with (
        atomic_write(files.path("archive"), "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for path in files.files_to_archive():
            archive.write(path, path.name)
        archive.writestr(files.path("done").name, done)
