"""Dataclasses from nested mappings, as YAML and JSON give them, with every key checked."""

import dataclasses
from typing import Any, TypeVar, get_args, get_type_hints

from model.errors import ConfigError
from msa.base.json_files import to_record

Settings = TypeVar("Settings")


def from_mapping(dataclass_type: type[Settings], content: Any, path: str = "") -> Settings:
    """Build a dataclass from nested mappings, as YAML and JSON give them.

    Fields that are left out keep their defaults. Numbers may be texts, because YAML reads 1e-3 as text.
    `path` are the keys that lead to the mapping, joined by dots, for errors.

    Raises:
        ConfigError: an unknown key, a missing one, or a value of the wrong type.
    """
    # first, since checks of values may fail for the lack of a misspelt one
    _check_keys(dataclass_type, content, path)
    try:
        return to_record(content, dataclass_type, strict=False)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from None


def flat_values(settings: Any, path: str = "") -> dict[str, Any]:
    """Return the values of nested dataclasses by their keys, joined by dots as in errors."""
    result: dict[str, Any] = {}
    for item in dataclasses.fields(settings):
        name, value = f"{path}.{item.name}" if path else item.name, getattr(settings, item.name)
        result |= flat_values(value, name) if dataclasses.is_dataclass(value) else {name: value}
    return result


def _check_keys(kind: Any, content: Any, path: str) -> None:
    """Raise ConfigError if the content of a dataclass, or of one inside it, has an unknown key."""
    if isinstance(content, list):
        for index, entry in enumerate(content):
            for item in get_args(kind)[:1]:
                _check_keys(item, entry, f"{path}[{index}]")
    for dataclass_type in filter(dataclasses.is_dataclass, (kind, *get_args(kind))):
        types = get_type_hints(dataclass_type)
        for key, value in content.items() if isinstance(content, dict) else ():
            name = f"{path}.{key}" if path else str(key)
            if key not in types:
                raise ConfigError(f"{name}: unknown key; expected one of {', '.join(types)}")
            _check_keys(types[key], value, name)
