"""One kernel of each generator, written out: `generated/` shows what the generators make.

After a change of a generator, `python -m tests.cuda.alignment.test_generated` writes the files again.
"""

from pathlib import Path

import pytest

from cuda.alignment.gapless.generator import Variant, source
from cuda.alignment.gapless.layout import BYTE, LaneLayout
from cuda.alignment.smith_waterman.generator import Shape, packed_source, wide_source

FOLDER = Path(__file__).parent / "generated"
SOURCES = {
    "gapless_bounds.py.txt": source(Variant("bounds", LaneLayout(4, 8, 1), BYTE, True)),
    "smith_waterman_packed.py.txt": packed_source(Shape(8, 4, 64)),
    "smith_waterman_traced.py.txt": wide_source(Shape(4, 8, 64), traced=True),
}
"""Generated source by file, for queries of at most 32 residues."""


@pytest.mark.parametrize("name", SOURCES)
def test_generated_kernel_equals_the_file(name: str) -> None:
    assert (FOLDER / name).read_text() == SOURCES[name]


if __name__ == "__main__":
    for name, text in SOURCES.items():
        (FOLDER / name).write_text(text)
