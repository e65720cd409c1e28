"""Creation of tests/model/data from a folder of parity sets (see benchmarks/parity.py).

usage: python tests/model/parity_data.py ../shared/parity

About SAMPLE elements of each tensor are kept, as whole rows (all axes but the last are flattened). The
tensor's name seeds the random selection, so that the test selects the same rows.
"""

import sys
import zlib
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
SAMPLE = 3072


def sample_rows(name: str, tensor: np.ndarray) -> np.ndarray:
    """Return the rows of a tensor that the test data contains: [rows, last axis]."""
    rows = tensor.reshape(-1, tensor.shape[-1] if tensor.ndim > 1 else 1)
    count = max(1, SAMPLE // rows.shape[1])
    if len(rows) <= count:
        return rows
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return rows[np.sort(random.choice(len(rows), count, replace=False))]


def main() -> None:
    """Write one file per set, and one file of features per network."""
    DATA.mkdir(exist_ok=True)
    for folder in sorted(Path(sys.argv[1]).glob("*_blocks")):
        model = folder.name.split("_ptm_")[0]
        with np.load(folder / "features.npz") as archive:
            np.savez_compressed(DATA / f"{model}_features.npz", **archive)
        kept = {}
        for file in sorted(folder.glob("iter*.npz")):
            with np.load(file) as archive:
                for name in archive.files:
                    kept[f"{file.stem}/{name}"] = sample_rows(name, archive[name])
        np.savez_compressed(DATA / f"{folder.name}.npz", **kept)


if __name__ == "__main__":
    main()
