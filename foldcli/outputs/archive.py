"""NAME.result.zip: the files of a finished target in one archive."""

import zipfile

from foldcli.outputs.layout import TargetFiles
from msa.io.atomic import atomic_write


def write_archive(files: TargetFiles) -> None:
    """Write the archive of a target, replacing an older one; the target's other files must be complete.

    Raises:
        OSError: a file cannot be read, or the archive cannot be written.
    """
    with (
        atomic_write(files.path("archive"), "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for path in files.archived():
            archive.write(path, path.name)
