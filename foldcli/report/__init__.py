"""Reports: one HTML page and four plots per target, and an index of a folder of targets.

They use only the files of a finished target, so they can be regenerated at any time; see docs/report.md.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldcli.outputs.layout import FileKind, TargetFiles


# defined here, because runs create their settings before they import numpy, which the other modules need
@dataclass(frozen=True)
class ReportSettings:
    """The parts of a report to write.

    Args:
        page: NAME.html, and index.html for several targets.
        plots: NAME_coverage.png, NAME_plddt.png, NAME_pae.png and NAME_thumbnail.png.
        references: folder of experimental structures, with which models are compared.
        similar: structure library that is searched for chains like the best model; None for no search.
    """

    page: bool = True
    plots: bool = True
    references: Path | None = None
    similar: Path | None = None

    def is_made(self, files: "TargetFiles") -> bool:
        """Return True if a target has these parts, as far as it can have them."""
        kinds: tuple[FileKind, ...] = ("report",) if self.page else ()
        kinds += ("plddt", "thumbnail") if self.plots else ()
        kinds += ("similar",) if self.similar is not None else ()
        if self.references is not None:
            from foldcli.comparison.references import find_reference  # imports numpy

            kinds += ("comparison",) if find_reference(self.references, files.name) else ()
        return all(files.path(kind).is_file() for kind in kinds)
