"""Where finished targets lie in a folder of results."""

import json
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import TargetFiles, find_targets


def finished_targets(out: Path) -> list[TargetFiles]:
    """Every target with ranked models in a folder or in the folders right below it."""
    folders = [
        out,
        *sorted(path for path in out.iterdir() if path.is_dir() and not path.name.startswith(".")),
    ]
    return [files for folder in folders for files in find_targets(folder)]


def read_done(files: TargetFiles) -> dict[str, Any]:
    """The content of a target's done.json; empty where there is none, as in ColabFold's results."""
    try:
        content = json.loads(files.path("done").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
