"""Scripts that open the models of a target in ChimeraX and PyMOL, coloured by pLDDT as in AlphaFold DB."""

import os
from collections.abc import Sequence

from foldcli.outputs.layout import FileKind, TargetFiles
from foldcli.outputs.model_files import ModelResult
from msa.base.atomic import atomic_write

# colour of residues above each pLDDT, later ones first
_COLORS = ((0, "0xFF7D45"), (50, "0xFFDB13"), (70, "0x65CBF3"), (90, "0x0053D6"))
# more models would hide each other
_MAX_MODELS = 25


def write_viewer_scripts(files: TargetFiles, ranked: Sequence[ModelResult]) -> None:
    """Write NAME.cxc and NAME.pml, which superpose the models on the best one."""
    folder = files.path("chimerax").parent
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for rank, result in enumerate(ranked[:_MAX_MODELS], 1):
        names += [os.path.relpath(path, folder) for path in files.existing_structures(rank, result.tag)[:1]]
    chimerax = [f"open {name}" for name in names]
    chimerax += [f"matchmaker #{number} to #1" for number in range(2, len(names) + 1)]
    chimerax += ["color bfactor palette alphafold", "cartoon", "view"]
    pymol = [f"load {name}, rank_{rank:03d}" for rank, name in enumerate(names, 1)]
    pymol += [f"super rank_{rank:03d}, rank_001" for rank in range(2, len(names) + 1)]
    pymol += ["as cartoon, polymer", *(f"color {color}, b > {limit}" for limit, color in _COLORS), "orient"]
    scripts: dict[FileKind, list[str]] = {"chimerax": chimerax, "pymol": pymol}
    for kind, lines in scripts.items():
        with atomic_write(files.path(kind)) as stream:
            stream.write("\n".join([*lines, ""]))
