"""Time searches by structure: one model and many against the embedded library and a large one.

The large library repeats the embedded one's states, of which a share is replaced at random:

    python benchmarks/structure_search.py --chains 1000000 --models 500 --device cuda
"""

import time

import numpy as np
from options import parse_options

from features.templates.library.library import StructureLibrary
from features.templates.structures.search import StructureSearchSettings, search_structures
from foldcli.pipeline.search.searcher import open_search_engine
from foldcli.structure_search.search import OpenLibrary
from msa.database.sequence_arrays import SequenceArrays

_REPLACED = 0.3


class _RepeatedLibrary:
    """The chains of a library, repeated; only what searches read."""

    def __init__(self, library: StructureLibrary, states: SequenceArrays, chains: int) -> None:
        generator, whole = np.random.default_rng(0), library.database.arrays
        order = np.sort(np.arange(chains) % len(library))
        blocks = whole.gather(order)
        self.arrays = SequenceArrays(blocks.residues, blocks.offsets, blocks.lengths)
        copied = states.gather(order)
        residues = copied.residues.copy()
        replaced = (generator.random(len(residues), np.float32) < _REPLACED) & (residues < 20)
        residues[replaced] = generator.choice(states.residues[states.residues < 20], replaced.sum())
        self.states = SequenceArrays(residues, copied.offsets, copied.lengths)
        self.database, self._chains = self, chains

    def __len__(self) -> int:
        return self._chains


def main() -> None:
    """Print seconds of each search."""
    arguments = parse_options(__doc__, chains=100000, models=20, device="auto", threads=2)
    small, settings = OpenLibrary.open(None), StructureSearchSettings(threads=arguments.threads)
    engine = open_search_engine(arguments.device)
    picked = np.linspace(500, len(small.library) - 500, arguments.models).astype(int)
    models = [small.library.chain(int(k)) for k in picked]
    large = _RepeatedLibrary(small.library, small.states, arguments.chains)
    libraries = ("embedded", small.library, small.states), ("large", large, large.states)
    for name, library, states in libraries:
        parts = {"first": models[:1], "one": models[1:2], "another": models[2:3], "all": models}
        for label, queries in parts.items():
            start = time.perf_counter()
            found = list(search_structures(queries, library, states, engine, settings))
            seconds = time.perf_counter() - start
            residues = sum(len(query.sequence) for query in queries)
            hits = sum(len(each) for _, each in found)
            sizes = f"{len(queries)} models, {residues} residues, {hits} hits"
            print(f"{name}, {len(library):,} chains, {label}: {sizes}, {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
