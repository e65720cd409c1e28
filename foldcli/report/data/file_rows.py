"""The files of a target, as its page lists them."""

from collections.abc import Iterable
from urllib.parse import quote

from foldcli.outputs.layout import FILES, FileKind, TargetFiles
from foldcli.report.data.molecules import MoleculeModel
from foldcli.report.data.result import RankedModel, link_from_page
from foldcli.units import format_bytes

_FILE_CONTENTS: dict[FileKind, str] = {
    "alignment": "alignment",
    "hits": "table of hits",
    "templates": "templates, used and rejected",
    "coverage": "plot of the alignment",
    "plddt": "plot of pLDDT",
    "pae": "plot of the predicted aligned error",
    "comparison": "comparison with the reference",
    "similar": "structures that look like the best model",
    "similar_structure": "the most similar structure, on the best model",
    "aligned_error": "predicted aligned error of the best model",
    "done": "settings, versions, times and checksums",
    "archive": "all files in one archive",
}
_MODEL_CONTENTS = {"PDB": "structure, PDB", "CIF": "structure, mmCIF", "JSON": "scores", "TSV": "contacts"}


def file_type(name: str) -> str:
    """Return the suffix of a file's name in upper case, without the dot."""
    return name.rpartition(".")[2].upper()


def file_rows(
    files: TargetFiles, models: Iterable[RankedModel | MoleculeModel], has_record: bool
) -> list[dict[str, str]]:
    """Return the existing files of a target: link from its page, name, content in plain words, size.

    Args:
        files: the target's files.
        models: its models.
        has_record: whether done.json will exist; it is written after the page.
    """
    links_and_contents = [
        (file, f"{_MODEL_CONTENTS.get(file_type(file), 'file')} of rank {model.rank}")
        for model in models
        for file in model.files
    ]
    for kind in FILES:
        path = files.path(kind)
        if kind in _FILE_CONTENTS and (path.is_file() or (kind == "done" and has_record)):
            links_and_contents.append((link_from_page(files, path), _FILE_CONTENTS[kind]))
    rows = []
    for link, content in links_and_contents:
        path = files.folder / link
        size = format_bytes(path.stat().st_size) if path.is_file() else ""
        rows.append({"link": quote(link), "name": path.name, "content": content, "size": size})
    return rows
