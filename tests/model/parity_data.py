"""Creation of tests/model/data from a folder of parity sets (see benchmarks/parity.py).

usage: python tests/model/parity_data.py ../shared/parity

About SAMPLE elements of each tensor are kept, or MULTIMER_SAMPLE in multimer sets, as whole rows (all axes
but the last are flattened). The tensor's name seeds the random selection, so that the test selects the same
rows.
"""

import shutil
import sys
import zlib
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
SAMPLE = 3072
MULTIMER_SAMPLE = 2048
MULTIMER_SETS = (
    "heterodimer",
    "heterodimer_templates",
    "one_and_two_copies_templates",
    "heterodimer_48_blocks",
)
# tensors of multimer sets that the test data lacks: MSA representations with the rows of empty template slots
_NOT_KEPT = (
    "sampled/extra_",
    "sampled/true_msa",
    "sampled/bert_mask",
    "sampled/msa_mask",
    "taps/evoformer_stack",
)


def sample_rows(name: str, tensor: np.ndarray, sample: int = SAMPLE) -> np.ndarray:
    """Return the rows of a tensor that the test data contains: [rows, last axis]."""
    rows = tensor.reshape(-1, tensor.shape[-1] if tensor.ndim > 1 else 1)
    count = max(1, sample // rows.shape[1])
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
    for name in MULTIMER_SETS:
        write_multimer_set(Path(sys.argv[1]) / "multimer" / name)


def write_multimer_set(folder: Path) -> None:
    """Write the features and a sample of the results of a multimer set; random numbers are kept whole."""
    if (folder / "features.npz").exists():
        shutil.copyfile(folder / "features.npz", DATA / f"multimer_{folder.name}_features.npz")
    kept = {}
    for file in sorted(folder.glob("iter*.npz")):
        with np.load(file) as archive:
            for name in archive.files:
                tensor = archive[name]
                if name == "draws/uniform_residues":
                    # the rest is not used, and without it the file is smaller
                    tensor = np.where(archive["draws/uniform_mask"][..., None] < 0.15, tensor, 0)
                if not name.startswith("draws/"):
                    tensor = sample_rows(name, tensor, MULTIMER_SAMPLE)
                if not name.startswith(_NOT_KEPT):
                    kept[f"{file.stem}/{name}"] = tensor
    np.savez_compressed(DATA / f"multimer_{folder.name}.npz", **kept)


if __name__ == "__main__":
    main()
