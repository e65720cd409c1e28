"""Tests of the table of a screen with a background."""

from pathlib import Path
from typing import Any

from foldcli.outputs.summary import write_screen_table


def model(target: str, confidence: float, ipsae: float | None = None, rank: int = 1) -> dict[str, Any]:
    return {"target": target, "rank": rank, "ranking_confidence": confidence, "ipsae": ipsae}


def test_p_values_count_the_pairs_of_the_background_with_at_least_the_score(tmp_path: Path) -> None:
    path = tmp_path / "screen.tsv"
    chance = [model(f"background--{n}", n / 10, n / 10) for n in range(9)]
    write_screen_table(path, [model("a", 0.9, 0.35), model("a", 1.0, 1.0, rank=2), model("b", 0.8), *chance])
    heading, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert heading[:7] == [
        "target", "rank", "background", "ranking_confidence", "ranking_confidence_p", "ipsae", "ipsae_p",
    ]  # fmt: skip
    # of nine, none is as high as 0.9, one as 0.8, five as 0.35
    assert [row[:7] for row in rows] == [
        ["a", "1", "9", "0.9", "0.1", "0.35", "0.6"],
        ["b", "2", "9", "0.8", "0.2", "", ""],
    ]


def test_screens_without_background_have_no_table(tmp_path: Path) -> None:
    path = tmp_path / "screen.tsv"
    write_screen_table(path, [model("a", 0.9), model("background--0", 0.1)])
    assert path.is_file()
    # that of an earlier screen is removed, a file of the user's is not
    write_screen_table(path, [model("a", 0.9)])
    assert not path.exists()
    path.write_text("A\tB\n")
    write_screen_table(path, [model("a", 0.9)])
    assert path.read_text() == "A\tB\n"
