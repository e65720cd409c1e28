"""The table of a screen with a background: the scores of its complexes, and how often chance gives more."""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldcli.inputs.names import BACKGROUND_PREFIX
from msa.base.atomic import atomic_write

# scores of the best model, of which larger ones are better
SCORES = ("ranking_confidence", "ipsae", "pdockq2", "ilis")


def write_screen_table(path: Path, models: Sequence[dict[str, Any]]) -> None:
    """Write the requested complexes of a screen with their scores and p-values, unless it has no background.

    A p-value is (1 + b) / (1 + n), if b of n pairs of the background have at least this score (Phipson and
    Smyth, Stat. Appl. Genet. Mol. Biol. 9, 39, 2010).

    Args:
        path: path of the table.
        models: models of all targets, best targets first; see `foldcli.outputs.summary.order_models`.
    """
    best = [model for model in models if model["rank"] == 1]
    background = [model for model in best if model["target"].startswith(BACKGROUND_PREFIX)]
    requested = [model for model in best if not model["target"].startswith(BACKGROUND_PREFIX)]
    if not background or not requested:
        return
    chance = {
        name: sorted(model[name] for model in background if model.get(name) is not None) for name in SCORES
    }
    columns = [column for name in SCORES for column in (name, f"{name}_p")]
    with atomic_write(path) as stream:
        stream.write("\t".join(("target", "rank", "background", *columns)) + "\n")
        for rank, model in enumerate(requested, 1):
            cells = [model["target"], str(rank), str(len(background))]
            for name in SCORES:
                value = model.get(name)
                cells += ["", ""] if value is None else [str(value), f"{_p_value(value, chance[name]):.3g}"]
            stream.write("\t".join(cells) + "\n")


def _p_value(score: float, chance: Sequence[float]) -> float:
    """Return the p-value of a score, given the sorted scores of the background."""
    return (1 + len(chance) - bisect_left(chance, score)) / (1 + len(chance))
