"""Fingerprints: hashes of everything that a result depends on, which identify finished work."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any


def fingerprint(value: Any) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_to_json)
    return hashlib.sha256(text.encode()).hexdigest()


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot take a fingerprint of {type(value).__name__}")
