"""A writer of MMseqs2 databases for tests."""

from collections.abc import Sequence
from pathlib import Path

from msa.mmseqs.files import PADDED_LETTERS


def write(
    name: Path,
    records: Sequence[tuple[str, str]],
    *,
    padded: bool = False,
    files: int = 1,
    keys: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
) -> Path:
    """Write the files of a database.

    Args:
        name: name of the database.
        records: header and sequence of each entry.
        padded: write a padded database.
        files: number of data files.
        keys: key of each entry.
        order: entries in the order of the index lines.
    """
    keys = list(keys or range(len(records)))
    order = list(order or range(len(records)))
    for suffix, texts in (("", [s for _, s in records]), ("_h", [h for h, _ in records])):
        numbers = padded and not suffix
        parts = [bytearray() for _ in range(1 if suffix else files)]
        locations = []
        for k, text in enumerate(texts):
            part = k * len(parts) // len(texts)
            content = bytes(map(PADDED_LETTERS.index, text)) if numbers else text.encode()
            entry = content + b"\x14" * (-len(content) % 4) if numbers else content + b"\n\0"
            locations.append((sum(map(len, parts[: part + 1])), len(content) + 2))
            parts[part] += entry
        for number, part_bytes in enumerate(parts):
            Path(f"{name}{suffix}" + (f".{number}" if files > 1 and not suffix else "")).write_bytes(
                part_bytes
            )
        lines = [f"{keys[k]}\t{locations[k][0]}\t{locations[k][1]}\n" for k in order]
        Path(f"{name}{suffix}.index").write_text("".join(lines))
        dbtype = 12 if suffix else (8 << 16 if padded else 0)
        Path(f"{name}{suffix}.dbtype").write_bytes(dbtype.to_bytes(4, "little"))
    return name
