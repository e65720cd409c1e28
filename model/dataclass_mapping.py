"""Dataclasses from nested mappings, as YAML and JSON give them, with every key checked."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from model.errors import ConfigError

Settings = TypeVar("Settings")


def from_mapping(dataclass_type: type[Settings], content: Any, path: str = "") -> Settings:
    """Build a dataclass from nested mappings, as YAML and JSON give them.

    Args:
        dataclass_type: the dataclass.
        content: its fields by name; those left out keep their defaults.
        path: keys that lead to the mapping, joined by dots, for errors.

    Raises:
        ConfigError: an unknown key, a missing one, or a value of the wrong type.
    """
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path or 'top level'}: expected keys and values, got {content!r}")
    hints = typing.get_type_hints(dataclass_type)
    fields = {item.name: item for item in dataclasses.fields(dataclass_type)}  # type: ignore[arg-type]
    values = {}
    for key, value in content.items():
        name = f"{path}.{key}" if path else str(key)
        if key not in fields:
            raise ConfigError(f"{name}: unknown key; expected one of {', '.join(fields)}")
        values[key] = _convert(hints[key], value, name)
    required = [
        name
        for name, item in fields.items()
        if item.default is dataclasses.MISSING
        and item.default_factory is dataclasses.MISSING
        and name not in values
    ]
    if required:
        raise ConfigError(f"{path or 'top level'}: missing {', '.join(required)}")
    return dataclass_type(**values)


def _convert(hint: Any, value: Any, name: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else _convert(options[0], value, name)
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast(type, hint), value, name)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name}: expected a list, got {value!r}")
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, entry, f"{name}[{index}]") for index, entry in enumerate(value))
    if hint is float and isinstance(value, str):
        try:
            return float(value)  # YAML reads 1e-3 as text
        except ValueError:
            pass
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{name}: expected {hint.__name__}, got {value!r}")
    try:
        return hint(value)
    except OverflowError:
        raise ConfigError(f"{name}: the number is too large") from None
