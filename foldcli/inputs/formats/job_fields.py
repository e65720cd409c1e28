"""Values of the keys of job files, checked: text, numbers, flags, chain ids, seeds, and named files."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foldcli.inputs.formats.json_with_lines import MappingWithLines, decode_utf8
from msa.alignments.files import Alignment, read_alignment
from msa.base.errors import InputError
from msa.io.compression import read_bytes

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# the largest seeds that AlphaFold 3 takes
_MAX_SEED = 2**32
_SEED = re.compile("[0-9]{1,10}")


def as_mapping(value: Any, description: str, path: str, line: int) -> MappingWithLines:
    """Return a value that must be a mapping; raise InputError if it is not."""
    if not isinstance(value, MappingWithLines):
        raise InputError(f"{description} is not a mapping", path, line)
    return value


def check_keys(mapping: MappingWithLines, known: Iterable[str], path: str) -> None:
    """Raise InputError for an unknown key, which is probably misspelt; the error names the line."""
    for key in mapping:
        if key not in known:
            raise InputError(f"unknown key {key!r}", path, mapping.line_of(key))


def required_text(mapping: MappingWithLines, key: str, path: str) -> str:
    """Return the text of a required key.

    Raises:
        InputError: the key is missing, or its value is not text.
    """
    value = mapping.get(key)
    if not isinstance(value, str) or not value.strip():
        reason = f"{key!r} is not text" if value not in (None, "") else f"no {key!r}"
        if isinstance(value, list):
            reason += "; in YAML, quote text that begins with a bracket"
        raise InputError(reason, path, mapping.line_of(key))
    return value


def read_chains(entity: MappingWithLines, key: str, path: str) -> tuple[str, ...]:
    """Return the chain ids of an entity: one text, or a list of them.

    Raises:
        InputError: there is none, or one is not a printable word.
    """
    value = entity.get(key)
    names = value if isinstance(value, list) else [value]
    line = entity.line_of(key)
    if not names or any(not isinstance(name, str) or not name.strip() for name in names):
        raise InputError(f"no {key!r}" if value is None else f"{key!r} is not a chain id", path, line)
    chains = tuple(map(str, names))
    for name in chains:
        if not name.isprintable() or " " in name:
            raise InputError(f"{key!r} {name!r:.40} is not a printable word", path, line)
    return chains


def read_number(value: Any, name: str, path: str, line: int) -> int:
    """Return a whole number, which YAML has as text; raise InputError for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 12:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name!r} is {value!r:.40}: expected a whole number", path, line)
    return value


def read_flag(mapping: MappingWithLines, key: str, path: str, default: bool = False) -> bool:
    """Return true or false, which YAML has as text; the default if the key is absent.

    Raises:
        InputError: the value is neither.
    """
    value = mapping.get(key)
    if value is None:
        return default
    flag = value if isinstance(value, bool) else _FLAGS.get(str(value).lower())
    if flag is None:
        reason = f"{key!r} is {value!r:.40}: expected true or false"
        raise InputError(reason, path, mapping.line_of(key))
    return flag


def find_unsupported(mapping: MappingWithLines, descriptions: dict[str, str], path: str) -> None:
    """Raise InputError for a key with content that no network here supports; the error names it."""
    for key, description in descriptions.items():
        if mapping.get(key) not in (None, [], {}, "", False):
            raise InputError(f"{description} ({key}) are not supported", path, mapping.line_of(key))


def find_named_file(path: str, name: str, description: str, line: int) -> Path:
    """Return a file that a job names, relative to the folder of the job file or to the current folder.

    Raises:
        InputError: there is no such file.
    """
    candidates = (Path(path).parent / name, Path(name)) if path != "-" else (Path(name),)
    for candidate in candidates:
        try:
            if candidate.is_file():
                return candidate
        except (OSError, ValueError):  # such as a name that is too long
            continue
    raise InputError(f"{description} not found: {name:.200}", path, line)


def text_or_file(mapping: MappingWithLines, key: str, path_key: str, path: str) -> str:
    """Return mmCIF text from the job, or from the file that it names.

    Raises:
        InputError: neither is given, or both are, or the file cannot be read.
    """
    if mapping.get(key) and mapping.get(path_key):
        raise InputError(f"both {key!r} and {path_key!r} are given", path, mapping.line_of(path_key))
    if not mapping.get(path_key):
        return required_text(mapping, key, path)
    name = required_text(mapping, path_key, path)
    file = find_named_file(path, name, path_key, mapping.line_of(path_key))
    try:
        return decode_utf8(read_bytes(file), str(file))
    except OSError as error:
        reason = f"{path_key}: {name:.200}: {error.strerror or error}"
        raise InputError(reason, path, mapping.line_of(path_key)) from None


def read_seeds(content: MappingWithLines, key: str, path: str) -> tuple[int, ...]:
    """Return the seeds of a job; AlphaFold Server writes them as text, and leaves the list empty.

    Raises:
        InputError: they are not a list of numbers.
    """
    values = content.get(key)
    seeds = []
    for value in [] if values is None else values if isinstance(values, list) else [values]:
        if isinstance(value, str) and _SEED.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_SEED:
            reason = f"{key} has {value!r:.40}: expected numbers from 0 to {_MAX_SEED - 1:,}"
            raise InputError(reason, path, content.line_of(key))
        seeds.append(value)
    return tuple(seeds)


def read_entities(mapping: MappingWithLines, path: str) -> list[tuple[str, MappingWithLines]]:
    """Return (kind, entity) of each item of the list `sequences`; each item is a mapping with one key.

    Raises:
        InputError: the list is missing, or an item is not such a mapping.
    """
    line = mapping.line_of("sequences")
    items = mapping.get("sequences")
    if not isinstance(items, list) or not items:
        is_empty = isinstance(items, list)
        reason = "'sequences' is empty" if is_empty else "'sequences' is not a list of chains"
        reason = "no list 'sequences'" if items is None else reason
        raise InputError(reason, path, line)
    entities = []
    for item in items:
        entry = as_mapping(item, "an item of 'sequences'", path, line)
        if len(entry) != 1:
            raise InputError("an item of 'sequences' must have one key, such as protein", path, entry.line)
        ((kind, entity),) = entry.items()
        entities.append((kind, as_mapping(entity, repr(kind), path, entry.line_of(kind))))
    return entities


def read_named_alignment(path: str, name: str, line: int) -> Alignment:
    """Read an alignment that a job names; see `find_named_file`.

    Raises:
        InputError: the file is missing, or it is not an alignment.
    """
    return read_alignment(os.fspath(find_named_file(path, name, "alignment file", line)))
