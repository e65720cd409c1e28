"""From molecules to predicted structures: a command line, and six names for Python.

The names follow semantic versioning; everything else is internal. Each is imported when it is first used.
"""

import importlib
from typing import Any

__all__ = ["Alignment", "Prediction", "Session", "fold", "load", "search"]

_MODULES = {
    "Alignment": "msa.alignments.files",
    "Prediction": "foldcli.api.results",
    "Session": "foldcli.api.session",
    "fold": "foldcli.api.session",
    "load": "foldcli.api.results",
    "search": "foldcli.api.session",
}


def __getattr__(name: str) -> Any:
    """Import one of the public names."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
