"""Writes MMseqs2 databases as their format says, file by file."""

from collections.abc import Sequence
from pathlib import Path

from msa.io.mmseqs_files import PADDED_LETTERS


def write(
    name: Path,
    records: Sequence[tuple[str, str]],
    *,
    padded: bool = False,
    files: int = 1,
    keys: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
) -> Path:
    """Write the files of a database; `order` is that of the lines in its indices."""
    keys = list(keys or range(len(records)))
    order = list(order or range(len(records)))
    for of, texts in (("", [s for _, s in records]), ("_h", [h for h, _ in records])):
        numbers = padded and not of
        parts = [bytearray() for _ in range(1 if of else files)]
        places = []
        for k, text in enumerate(texts):
            part = k * len(parts) // len(texts)
            content = bytes(map(PADDED_LETTERS.index, text)) if numbers else text.encode()
            entry = content + b"\x14" * (-len(content) % 4) if numbers else content + b"\n\0"
            places.append((sum(map(len, parts[: part + 1])), len(content) + 2))
            parts[part] += entry
        for number, part_bytes in enumerate(parts):
            Path(f"{name}{of}" + (f".{number}" if files > 1 and not of else "")).write_bytes(part_bytes)
        lines = [f"{keys[k]}\t{places[k][0]}\t{places[k][1]}\n" for k in order]
        Path(f"{name}{of}.index").write_text("".join(lines))
        kind = 12 if of else (8 << 16 if padded else 0)
        Path(f"{name}{of}.dbtype").write_bytes(kind.to_bytes(4, "little"))
    return name
