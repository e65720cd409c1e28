"""Categories of mmCIF files."""

from collections.abc import Iterable, Sequence

import gemmi

# a value of a category; None is unknown (?), False does not apply (.)
Cell = str | int | None | bool


def new_document(block_name: str, entry: str) -> gemmi.cif.Document:
    """Return a document with one block; characters that end a block's name are replaced."""
    document = gemmi.cif.Document()
    printable = (letter if letter.isprintable() and letter != " " else "_" for letter in block_name)
    add(document.add_new_block("".join(printable)), "_entry", "id", [(entry,)])
    return document


def add(block: gemmi.cif.Block, category: str, columns: str, rows: Iterable[Sequence[Cell]]) -> None:
    """Add a category unless it has no rows, given the names of its columns, separated by spaces."""
    table = [[cell if cell is None or cell is False else str(cell) for cell in row] for row in rows]
    if table:
        values = map(list, zip(*table, strict=True))
        block.set_mmcif_category(category, dict(zip(columns.split(), values, strict=True)))
