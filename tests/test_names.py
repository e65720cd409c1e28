"""Names of classes: each stands for one thing in the whole repository."""

import ast
from collections import Counter
from pathlib import Path

# `foldcli.Prediction`, a name of the public interface, describes the files of a `model.prediction.Prediction`
ALLOWED = {"Prediction"}


def test_public_classes_have_different_names(root: Path) -> None:
    files = [
        file
        for name in ("foldcli", "msa", "features", "model", "cuda")
        for file in root.glob(f"{name}/**/*.py")
    ]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name[0] != "_")
    assert {name for name, count in counts.items() if count > 1} == ALLOWED
