"""Where finished targets lie in a folder of results."""

import json
from pathlib import Path
from typing import Any

from foldcli import done
from foldcli.layout import own_folder
from foldcli.report.result import target_names


def finished_targets(out: Path) -> list[tuple[Path, str]]:
    """(folder, name) of every target with ranked models in a folder or in the folders right below it."""
    folders = [
        out,
        *sorted(path for path in out.iterdir() if path.is_dir() and not path.name.startswith(".")),
    ]
    return [(folder, name) for folder in folders for name in target_names(folder)]


def read_done(folder: Path, name: str) -> dict[str, Any]:
    """The content of a target's done.json; empty where there is none, as in ColabFold's results."""
    try:
        content = json.loads(done.path_of(own_folder(folder, name), name).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
