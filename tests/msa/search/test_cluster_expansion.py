"""Tests of the engine for clustered databases: members are aligned if their representatives are hits."""

from pathlib import Path

import numpy as np
import pytest

from msa.alphabet import encode
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import EngineRequest, Selection
from msa.profile.pssm import QueryProfile, query_profile
from msa.search.cluster_expansion import ClusterExpandingEngine

QUERIES = ("MQIFVKTLTGKTITLEVEPSDTIENVKAKI", "MTYKLILNGKTLKGETTTEAVDAATAEKVF")
UNRELATED = "WCWCHPHPWCWCHPHPWCWCHPHPWCWC"
# representatives, each followed by the other members of its cluster; the last member has no similarity
CLUSTERS = {
    "a": [QUERIES[0], QUERIES[0][2:], "GG" + QUERIES[0][:20], UNRELATED],
    "b": [QUERIES[1][:-3], QUERIES[1]],
    # similar to the first query, but its representative is not
    "c": [UNRELATED + "H", QUERIES[0] + "G"],
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> TargetDatabase:
    folder = tmp_path_factory.mktemp("clusters")
    records = {f"{name}{k}": x for name, listed in CLUSTERS.items() for k, x in enumerate(listed)}
    (folder / "t.fasta").write_text("".join(f">{name}\n{x}\n" for name, x in records.items()))
    (folder / "t.tsv").write_text("".join(f"{name[0]}0\t{name}\n" for name in records))
    settings = BuildSettings(mask=False, clusters=Path(folder / "t.tsv"), threads=1)
    build_database([folder / "t.fasta"], folder / "db", settings)
    return TargetDatabase.open(folder / "db")


def profiles() -> list[QueryProfile]:
    return [query_profile(encode(sequence)) for sequence in QUERIES]
