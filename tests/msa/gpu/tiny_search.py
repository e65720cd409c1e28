"""A search of nine targets with five queries, with the hits of the CPU engine."""

from pathlib import Path
from typing import Any

import numpy as np

from foldcli.inputs.queries import query_from_alignment
from msa.alignments.files import parse_alignment
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import ProfileRecord
from msa.profile.statistics import bit_scores
from msa.search.database_search import SearchSettings, search_many

_LETTERS = list("ACDEFGHIKLMNPQRSTVWY")
BATCH_QUERIES = 2
"""Value for engine._BATCH_QUERIES, with which the last of three batches is short."""

CLUSTERS = "t0\tt0\nt0\tt2\nt1\tt1\nt0\tt6\nt3\tt3\nt3\tt4\nt3\tt5\nt7\tt7\nt1\tt8\n"
"""Clusters of the nine targets; some members are hits, others are not."""

Table = list[list[tuple[Any, ...]]]


class TinySearch:
    """A database, queries, and the hits that the CPU engine finds.

    Args:
        folder: existing folder for the database.
        clusters: lines of a cluster table; None for no clusters.
        settings: settings of the search.
    """

    def __init__(
        self, folder: Path, clusters: str | None = None, settings: SearchSettings | None = None
    ) -> None:
        self.settings = settings or SearchSettings(evalue=5.0, max_seqs=2, min_ungapped_score=8)
        rng = np.random.default_rng(1)
        words = ["".join(rng.choice(_LETTERS, 12)) for _ in range(3)]
        # the same sequence three times: their scores are equal, and two of the three pass the filter;
        # the second is similar to its own reversal, which lowers its corrected score
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
        query_texts = [words[0], words[1], words[2], "WW", words[0][3:]]
        self.queries = [FastaRecord(f"q{k}", s) for k, s in enumerate(query_texts)]
        # the last query has a profile from an alignment
        rows = f">q4\n{query_texts[4]}\n>like it\n{query_texts[4][:5]}-{words[1][:3]}\n".encode()
        self.queries[4] = query_from_alignment(parse_alignment(rows), matrix=self.settings.matrix)
        assert isinstance(self.queries[4], ProfileRecord)
        found = list(search_many(self.queries, self.database, self.settings, keep_filtered=True))
        self.expected, self.filtered = as_table(found), [filtered(hits) for _, hits in found]
        assert len({len(hits) for hits in self.expected}) > 1, "no hit is left out by its E-value"
        parameters = gumbel_parameters(self.settings.gap_open, self.settings.gap_extend, self.settings.matrix)
        corrected = [hit for hits in self.expected for hit in hits if hit[4] < bit_scores(hit[2], parameters)]
        assert corrected, "no score is corrected by that of the reversed profile"

    def check(self, engine: Engine, database: TargetDatabase | None = None) -> None:
        """Check that an engine finds the same hits, for all queries and if stopped after the first."""
        progress: list[int] = []
        searched = database or self.database
        results = list(
            search_many(
                self.queries,
                searched,
                self.settings,
                engine=engine,
                progress=lambda done, total: progress.append(done),
                keep_filtered=True,
            )
        )
        assert as_table(results) == self.expected
        assert [filtered(hits) for _, hits in results] == self.filtered
        assert progress[-1] == len(self.queries) * len(searched) * self.settings.num_iterations, progress
        # another search uses the loaded targets and is stopped after the first result
        again = search_many(self.queries, searched, self.settings, engine=engine)
        assert as_table([next(again)]) == self.expected[:1]
        again.close()


def filtered(hits: Hits) -> tuple[list[int], list[int]]:
    """Return the targets that passed the gapless filter, and their scores."""
    assert hits.filtered is not None
    return hits.filtered.targets.tolist(), hits.filtered.scores.tolist()


def as_table(results: Any) -> Table:
    """Return all fields of each query's hits."""
    return [
        [
            (
                h.target, h.id, h.alignment.score, h.evalue, h.bits, *h.alignment[1:5],
                h.alignment.cigar, h.identity,
            )
            for h in hits
        ]
        for _, hits in results
    ]  # fmt: skip
