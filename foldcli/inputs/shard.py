"""The `--shard I/N` option: every N-th target in alphabetical order, so that array jobs agree."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from foldcli.logs import logger

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """The part `index` (1-based) of `count` parts of a run's targets."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse "I/N".

        Raises:
            ValueError: the text has another form, or I is not between 1 and N.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None:
            raise ValueError(f"expected I/N such as 3/16, got {text!r}")
        index, count = int(match[1]), int(match[2])
        if not 1 <= index <= count:
            raise ValueError(f"expected 1 ≤ I ≤ N, got {text!r}")
        return cls(index, count)

    @property
    def suffix(self) -> str:
        """The suffix of file names that keeps array jobs from overwriting each other's files."""
        return f".{self.index}-of-{self.count}" if self.count > 1 else ""

    def select(self, items: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
        """Return the (name, item) pairs of this shard, sorted by name; log if only others have targets."""
        pairs = list(items)
        selected = self.part(pairs)
        if pairs and not selected:
            logger.info("shard %d/%d has no targets; there are %d in all", self.index, self.count, len(pairs))
        return selected

    def part(self, items: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
        """Return the (name, item) pairs of this shard, sorted by name."""
        return sorted(items, key=lambda pair: pair[0])[self.index - 1 :: self.count]
