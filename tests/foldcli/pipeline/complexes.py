"""Complexes, and runs with them: small networks, and a database that counts its searches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foldcli.families.registry import check_parameters
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.shard import Shard
from foldcli.params.parameters import ModelType, find_parameters, needed_families
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.search.protocols import HitSearcher
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings
from foldcli.report import ReportSettings
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord
from tests.foldcli.pipeline.network.tiny_worker import TinyPredictor
from tests.networks import tiny_parameters

FIRST, SECOND = "MKVLAAGIVQWE", "GHTKDLMNP"
PAIR = f"#12,9\t1,2\n>101\t102\n{FIRST}{SECOND}\n>s\tt\nMKVLSAGIVQWE-HTKELMNP\n>101\n{FIRST}---------\n"
PAIR += f">102\n------------{SECOND}\n>u\n------------GHSKDLMQP\n"
PROTEIN_A, PROTEIN_B = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQ", "MTYKLILNGKTLKGETTTEAVDAATAEKVFK"
SETTINGS = AlphaFold2Settings(
    num_recycles=0, max_seq=8, max_extra_seq=6, multimer_num_recycles=1, multimer_tolerance=0.0
)


def run_settings(
    out: Path, models: tuple[int, ...] = (1,), model_type: ModelType = "auto", **changes: Any
) -> RunSettings:
    """Return settings with small networks of both families, and without reports."""
    families = needed_families(model_type, single_chains=True, complexes=True)
    settings = replace(SETTINGS, **changes)
    predictor = TinyPredictor(
        find_parameters(tiny_parameters(), models, model_type, families), settings, NetworkMemory("cpu")
    )
    identities = TargetIdentities(predictor.sources, check_parameters(predictor.sources), settings)
    output = OutputSettings(out, "default", Shard(), False, ReportSettings(False, False))
    return RunSettings(output, FeatureSettings(out.parent / "cache"), predictor, identities)


class CountingSearcher(HitSearcher):
    """A database that counts the queries that it is searched with."""

    def __init__(self, searcher: LocalSearcher) -> None:
        self._searcher = searcher
        self.sequences: list[str] = []

    @property
    def checksums(self) -> dict[str, str]:
        return self._searcher.checksums

    def search_many(
        self, queries: Sequence[FastaRecord], *arguments: Any
    ) -> Iterator[tuple[FastaRecord, Hits]]:
        self.sequences += [query.sequence for query in queries]
        return self._searcher.search_many(queries, *arguments)


def open_database(folder: Path) -> LocalSearcher:
    """Build a database of sequences of two species, similar to the proteins A and B."""
    (folder / "t.fasta").write_text(
        f">a OX=9606\n{PROTEIN_A[:-1]}L\n>b OX=9606\n{PROTEIN_B[:-1]}R\n>c OX=10090\n{PROTEIN_A[:-2]}AA\n"
    )
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return LocalSearcher(TargetDatabase.open(folder / "db"), CpuEngine())
