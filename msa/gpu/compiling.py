"""Compiling kernels before they are needed, and saying so."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msa.io.atomic import atomic_write

if TYPE_CHECKING:
    from msa.gpu.kernels import Load

Progress = Callable[[int, int], None]
"""(kernels compiled, kernels to be compiled), as far as is known."""


class Compiling:
    """Compiles kernels before they are used, and says so.

    A file beside the kernels lists the query lengths for which all have been made, as to look for each takes
    longer than to load the few that the first query needs.

    Args:
        folder: of compiled kernels.
        progress: called when there are kernels to compile, and after each.
        share: number of this process among those that need the same kernels at the same time, from 0, and
            how many they are. Each compiles its share first and finds the others' made, or nearly all: what
            two compile at a time is written twice, whole each time.
    """

    def __init__(self, folder: Path, progress: Progress, share: tuple[int, int] = (0, 1)) -> None:
        self._folder, self._progress, self._share = folder, progress, share
        self._lock = threading.Lock()
        self._done = self._needed = 0
        self._made: dict[str, set[int]] | None = None

    def for_filter(self, lengths: Iterable[int]) -> None:
        """Make the filter's kernels for queries of these lengths."""
        new = self._new("filter", lengths)
        if not new:
            return
        from msa.gpu.kernels import filter_kernels

        self._make("filter", new, filter_kernels(new, self._folder))

    def for_alignment(self, lengths: Iterable[int], many: bool) -> None:
        """Make the kernels that align queries of these lengths, also to many targets in one call."""
        stage = "many alignments" if many else "alignment"
        new = self._new(stage, lengths)
        if not new:
            return
        from msa.gpu.kernels import alignment_kernels

        self._make(stage, new, alignment_kernels(new, self._folder, many))

    def _new(self, stage: str, lengths: Iterable[int]) -> list[int]:
        """Those lengths for which kernels may be missing."""
        from cuda.alignment.compiled import keep_in

        keep_in(self._folder)
        with self._lock:
            if self._made is None:
                self._made = {"filter": set(), "alignment": set(), "many alignments": set()}
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    kept = json.loads(self._list().read_text())
                    self._made = {name: set(map(int, kept[name])) for name in self._made}
            return sorted(set(lengths) - self._made[stage])

    def _list(self) -> Path:
        from cuda.alignment.compiled import kernels_identity

        return self._folder / f"made_{kernels_identity()}.json"

    def _make(self, stage: str, lengths: Sequence[int], loads: "Sequence[Load]") -> None:
        self._compile(loads)
        with self._lock, contextlib.suppress(OSError):
            assert self._made is not None
            self._made[stage].update(lengths)
            content = {name: sorted(made) for name, made in self._made.items()}
            with atomic_write(self._list()) as stream:
                json.dump(content, stream)

    def _compile(self, loads: "Sequence[Load]") -> None:
        """Compile what is missing of these kernels, and has not been made by another process by then."""
        missing = [load for load in loads if not _is_kept(load)]
        first, step = self._share
        own = missing[first::step]
        if own:
            self._count(needed=len(own))
        for load in own:
            load()
            self._count(done=1)
        for load in missing:
            if not _is_kept(load):
                self._count(needed=1)
                load()
                self._count(done=1)

    def _count(self, done: int = 0, needed: int = 0) -> None:
        with self._lock:
            self._done += done
            self._needed += needed
            self._progress(self._done, self._needed)


def _is_kept(load: "Load") -> bool:
    """Load a kernel if it has been compiled before."""
    from cuda.alignment.compiled import NotKept, kept_only

    with kept_only():
        try:
            load()
        except NotKept:
            return False
    return True
