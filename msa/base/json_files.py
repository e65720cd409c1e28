"""JSON files that foldcli wrote, and that may have been damaged since."""

import json
from pathlib import Path
from typing import Any, NoReturn


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        ValueError: it is not JSON in UTF-8, or contains NaN, an unpaired surrogate, a number with thousands
            of digits, or too many levels of nesting.
        OSError: it cannot be read.
    """
    return parse_json(path.read_text(encoding="utf-8"))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; raises ValueError as `read_json` does."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
