"""A database of nine targets and five queries, with what a search of them finds."""

from pathlib import Path
from typing import Any

import numpy as np

from foldcli.inputs.queries import query_from_alignment
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.alignments import parse_alignment
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import ProfileQuery
from msa.profile.statistics import bit_scores
from msa.search.engine import Engine
from msa.search.search import SearchSettings, search_many

_LETTERS = list("ACDEFGHIKLMNPQRSTVWY")
BATCH = 2
"""Queries of a batch, for engine._BATCH: of five the last batch is short."""

CLUSTERS = "t0\tt0\nt0\tt2\nt1\tt1\nt0\tt6\nt3\tt3\nt3\tt4\nt3\tt5\nt7\tt7\nt1\tt8\n"
"""Clusters of the nine: some members are hits, and some are none."""

Table = list[list[tuple[Any, ...]]]


class Tiny:
    """The database in a folder, its queries, and the CPU engine's hits.

    Args:
        folder: exists; for the database.
        clusters: lines of a table; without, there are none.
        settings: of the search.
    """

    def __init__(
        self, folder: Path, clusters: str | None = None, settings: SearchSettings | None = None
    ) -> None:
        self.settings = settings or SearchSettings(evalue=60.0, max_seqs=2, min_ungapped_score=8)
        rng = np.random.default_rng(1)
        words = ["".join(rng.choice(_LETTERS, 12)) for _ in range(3)]
        # the same sequence three times: their scores are equal, and two of the three pass
        # the second reads much the same backwards, which counts against it
        sequences = [words[0], words[1] + words[1][8::-1], words[0][:5] + "G" + words[0][5:], *[words[2]] * 3]
        sequences += ["".join(rng.choice(_LETTERS, length)) for length in (1, 7, 11)]
        (folder / "t.fasta").write_text("".join(f">t{k}\n{s}\n" for k, s in enumerate(sequences)))
        table = None
        if clusters is not None:
            table = folder / "t.tsv"
            table.write_text(clusters)
        build = BuildSettings(mask=False, clusters=table, threads=1)
        build_database([folder / "t.fasta"], folder / "db", build)
        self.database = TargetDatabase.open(folder / "db")
        asked = [words[0], words[1], words[2], "WW", words[0][3:]]
        self.queries = [FastaRecord(f"q{k}", s) for k, s in enumerate(asked)]
        # one that brings a profile of its own
        rows = f">q4\n{asked[4]}\n>like it\n{asked[4][:5]}-{words[1][:3]}\n".encode()
        self.queries[4] = query_from_alignment(parse_alignment(rows), matrix=self.settings.matrix)
        assert isinstance(self.queries[4], ProfileQuery)
        self.expected = plain(search_many(self.queries, self.database, self.settings))
        assert len({len(hits) for hits in self.expected}) > 1, "no hit is left out by its E-value"
        parameters = gumbel_parameters(self.settings.gap_open, self.settings.gap_extend, self.settings.matrix)
        corrected = [hit for hits in self.expected for hit in hits if hit[4] < bit_scores(hit[2], parameters)]
        assert corrected, "no score is corrected by that of the reversed profile"

    def check(self, engine: Engine, name: str, database: TargetDatabase | None = None) -> None:
        """An engine finds the same, with all queries and when only the beginning is asked for."""
        pairs: list[int] = []
        there = database or self.database
        scored = search_many(
            self.queries, there, self.settings, engine, lambda done, total: pairs.append(done)
        )
        found = plain(scored)
        assert found == self.expected, f"{name}: {found}\n{self.expected}"
        assert pairs[-1] == len(self.queries) * len(there) * self.settings.num_iterations, pairs
        # what is there serves another search, of which only the beginning is wanted
        again = search_many(self.queries, there, self.settings, engine)
        assert plain([next(again)]) == self.expected[:1]
        again.close()


def plain(found: Any) -> Table:
    """All that is told of each query's hits."""
    return [
        [
            (
                h.target, h.id, h.score, h.evalue, h.bits, h.qstart, h.qend, h.tstart, h.tend, h.cigar,
                h.identity,
            )
            for h in hits
        ]
        for _, hits in found
    ]  # fmt: skip
