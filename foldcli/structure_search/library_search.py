"""One search by structure: models against a library, with the superposition of every hit."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from features.templates.candidates import aligned_pairs
from features.templates.library.chains import TemplateChain
from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.states import library_states
from features.templates.structures.scores import probabilities
from features.templates.structures.search import StructureSearchSettings, search_structures
from features.templates.user_templates import open_or_build_library
from foldcli.paths import cache_dir
from foldcli.process_state import set_numba_cache_folder
from foldcli.progress import progress_bar
from foldcli.structure_search.superposition import SuperposedHit, paired_traces, superpose_hit, tm_scores
from msa.base.atomic import writing_cache
from msa.cpu.engine import CpuEngine
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import Engine
from msa.hits.hits import Hits


@dataclass(frozen=True, eq=False)
class StructureHits:
    """The hits of one chain of a model.

    Args:
        hits: the hits, best first.
        pairs: int64 [n, 2], aligned residues of query and hit, from 0, of each hit.
    """

    query: TemplateChain
    hits: Hits
    pairs: Sequence[np.ndarray]
    superposed: Sequence[SuperposedHit]

    def columns(self) -> dict[str, Iterable[float]]:
        """Return the values of `msa.alignments.m8.STRUCTURE_COLUMNS`."""
        names = ("lddt", "alntmscore", "qtmscore", "ttmscore")
        values = {name: [getattr(hit, name) for hit in self.superposed] for name in names}
        return {"prob": probabilities(self.hits.evalues).tolist(), **values}


@dataclass(frozen=True, eq=False)
class OpenLibrary:
    """A structure library that is open for searches."""

    library: StructureLibrary
    states: SequenceArrays

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, threads: int = 1) -> "OpenLibrary":
        """Open a library, after building it from structure files, or its states, if there are none yet.

        Args:
            path: a library, structure files or a folder of them; None is the library that comes with foldcli.
            threads: worker processes of a build.

        Raises:
            InputError: there is no usable chain, or the library is damaged.
        """
        with progress_bar("building the structure library", "files") as progress:
            library = open_or_build_library(path or EMBEDDED, cache_dir(), threads, progress)
        with writing_cache(cache_dir()):
            return cls(library, library_states(library, cache_dir()))

    def search(
        self, queries: Iterable[TemplateChain], engine: Engine, settings: StructureSearchSettings
    ) -> Iterator[StructureHits]:
        """Yield the hits of each query; see `search_structures`."""
        for query, hits in search_structures(queries, self.library, self.states, engine, settings):
            pairs = aligned_pairs(hits)
            superposed = [
                superpose_hit(query, self.library.chain(target), each)
                for target, each in zip(hits.targets.tolist(), pairs, strict=True)
            ]
            yield StructureHits(query, hits, pairs, superposed)


def cpu_engine() -> Engine:
    """Return the engine of searches that a report makes."""
    set_numba_cache_folder()
    return CpuEngine()


@dataclass(frozen=True)
class ComplexHit:
    """An entry of the library of which several chains are hits of different chains of a model.

    Args:
        entry: its name, the part of the chains' ids before the last underscore.
        chains: ids of the query's and the entry's chain of each pair.
        tmscore: TM-score of all pairs in one superposition, by the residues of the model's chains.
        evalue: smallest E-value of its hits.
    """

    entry: str
    chains: tuple[tuple[str, str], ...]
    tmscore: float
    evalue: float


def join_chains(found: Sequence[StructureHits]) -> list[ComplexHit]:
    """Return the entries that match several chains of a model, best TM-score first.

    Each chain of an entry is paired with one chain of the model, those with the smallest E-values first.
    """
    candidates = sorted(
        (float(each.hits.evalues[k]), q, k) for q, each in enumerate(found) for k in range(len(each.hits))
    )
    chosen: dict[str, dict[int, int]] = {}
    used: set[tuple[str, str]] = set()
    for _, q, k in candidates:
        name = found[q].superposed[k].chain.id
        entry = name.rpartition("_")[0]
        pairs = chosen.setdefault(entry, {})
        if q not in pairs and (entry, name) not in used:
            pairs[q] = k
            used.add((entry, name))
    joined = [_complex_hit(entry, pairs, found) for entry, pairs in chosen.items() if len(pairs) > 1]
    return sorted(joined, key=lambda hit: -hit.tmscore)


def _complex_hit(entry: str, pairs: dict[int, int], found: Sequence[StructureHits]) -> ComplexHit:
    """Return the hit of several chains: query's chain → index of its hit."""
    members = [(found[q], k) for q, k in pairs.items()]
    traces = [paired_traces(each.query, each.superposed[k].chain, each.pairs[k]) for each, k in members]
    fixed, moved = (np.concatenate(side) for side in zip(*traces, strict=True))
    scores, _ = tm_scores(moved, fixed, [sum(each.query.resolved for each in found)])
    chains = tuple((each.query.id, each.superposed[k].chain.id) for each, k in members)
    return ComplexHit(entry, chains, scores[0], min(float(each.hits.evalues[k]) for each, k in members))
