"""Random and related sequences, and databases of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase

STANDARD = "ACDEFGHIKLMNPQRSTVWY"


def random_sequence(length: int, rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(STANDARD), length))


def mutated(sequence: str, kept: float, rng: np.random.Generator) -> str:
    """Replace residues at random positions; each is kept with probability `kept`."""
    others = rng.choice(list(STANDARD), len(sequence))
    return "".join(np.where(rng.random(len(sequence)) < kept, list(sequence), others))


def build(folder: Path, sequences: Sequence[str]) -> TargetDatabase:
    """Build a database of sequences named t0, t1 and so on."""
    (folder / "t.fasta").write_text("".join(f">t{k}\n{text}\n" for k, text in enumerate(sequences)))
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(mask=False, threads=1))
    return TargetDatabase.open(folder / "db")
