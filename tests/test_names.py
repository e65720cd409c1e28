"""Names of classes: each stands for one thing in the whole repository."""

import re
from collections import Counter
from pathlib import Path

# the public interface has a `Prediction`, which describes the files of a `model.prediction.Prediction`
ALLOWED = {"Prediction"}


def test_public_classes_have_different_names(root: Path) -> None:
    files = [
        file
        for name in ("foldcli", "msa", "features", "model", "cuda")
        for file in root.glob(f"{name}/**/*.py")
    ]
    counts = Counter(
        name for file in files for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.M)
    )
    assert {name for name, count in counts.items() if count > 1} == ALLOWED
