"""The states of a target, and the alignments that gave them, as its page shows them."""

import re
from collections import Counter
from typing import Any

_SEED = re.compile(r"_seed_(\d+)")


def state_values(done: dict[str, Any]) -> dict[str, Any] | None:
    """Return the table of a target's states; None without any."""
    facts = done.get("facts", {})
    if not (states := facts.get("states")):
        return None
    ranks = {model["tag"]: model["rank"] for model in done["ranking"]}
    sizes = facts.get("row_clusters", {}).get("rows", [])
    rows = [
        (
            str(number),
            str(len(state["models"])),
            f"rank {ranks.get(state['medoid'], '–')}",
            f"{state['tm_score']:.2f}",
            _alignments(state["models"], sizes),
        )
        for number, state in enumerate(states, 1)
    ]
    columns = ("state", "models", "in its middle", "TM-score with state 1", "alignments")
    return {"columns": columns, "rows": rows}


def _alignments(tags: list[str], sizes: list[int]) -> str:
    """Return the alignments of models in words; with clusters, a seed is the number of its cluster."""
    seeds = [int(match[1]) if (match := _SEED.search(tag)) else 0 for tag in tags]
    if not sizes:
        return "seed " + ", ".join(map(str, sorted(set(seeds))))
    names = Counter(
        f"cluster {seed} ({sizes[seed - 1]} rows)" if 1 <= seed <= len(sizes) else "all rows"
        for seed in seeds
    )
    return ", ".join(name if count == 1 else f"{name} × {count}" for name, count in names.items())
