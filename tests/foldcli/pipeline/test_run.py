"""Tests of loading targets: every kind of input, and which targets are loaded again."""

import json
from pathlib import Path

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CacheIndex
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import TargetInput
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.device import NetworkMemory
from foldcli.pipeline.estimates import inspect_target
from foldcli.pipeline.identity import TargetIdentities
from foldcli.pipeline.predictor import Predictor
from foldcli.pipeline.run import LoadedTarget, TargetLoader
from foldcli.pipeline.search_stage import SearchStage
from foldcli.pipeline.searcher import LocalSearcher
from foldcli.pipeline.settings import AlignmentSettings, FeatureSettings, OutputSettings, PredictSettings
from foldcli.report import ReportSettings
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.search.settings import AlignmentFilter, SearchSettings

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERY = FastaRecord("q", UBIQUITIN)


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> SearchStage:
    folder = tmp_path_factory.mktemp("database")
    (folder / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>half\n{UBIQUITIN[:40]}\n")
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    database = TargetDatabase.open(folder / "db")
    return SearchStage(
        LocalSearcher(database, CpuEngine()), AlignmentSettings(SearchSettings(), AlignmentFilter())
    )


def make_loader(tmp_path: Path, search: SearchStage | None = None, overwrite: bool = False) -> TargetLoader:
    settings = PredictSettings(num_recycles=0, max_seq=8, max_extra_seq=6)
    predictor = Predictor(find_parameters("demo", (3,), "auto"), settings, NetworkMemory("cpu"), False)
    output = OutputSettings(tmp_path / "out", "default", Shard(), overwrite, ReportSettings())
    identities = TargetIdentities([], settings, None if search is None else search.request)
    return TargetLoader(output, FeatureSettings(tmp_path / "cache"), predictor, identities, search)


def load(loader: TargetLoader, target_input: TargetInput) -> LoadedTarget:
    loaded = loader.load(("q", target_input))
    assert loaded is not None
    return loaded


def mark_done(loaded: LoadedTarget) -> Path:
    """Write the done.json that a prediction would write."""
    path = loaded.target.files.path("done")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"fingerprint": loaded.key}))
    return path


def test_finished_target_is_loaded_again_only_with_overwrite(tmp_path: Path, search: SearchStage) -> None:
    loader = make_loader(tmp_path, search)
    first = load(loader, QUERY).target
    assert (first.facts["search"]["hits"], first.facts["feature_cache_hit"]) == (2, False)
    ((cached,),) = CacheIndex(tmp_path / "cache").targets.values()
    files = [AlignmentTarget("q", (str(path),)) for path in (first.files.path("alignment"), cached.path)]
    keys = set()
    for target_input in (QUERY, cached, *files):
        loaded = load(loader, target_input)
        # every input is the same alignment
        assert loaded.target.facts["feature_cache_hit"]
        assert loaded.target.facts["alignment_rows"] == first.facts["alignment_rows"]
        assert inspect_target(target_input, loader.identities) == (len(UBIQUITIN), loaded.key)
        keys.add(loaded.key)
        done = mark_done(loaded)
        assert loader.load(("q", target_input)) is None and done.is_file()
        assert load(make_loader(tmp_path, search, overwrite=True), target_input).key == loaded.key
        assert not done.exists()
    assert len(keys) == 4


def test_standard_input_never_matches_a_finished_target(tmp_path: Path) -> None:
    loader = make_loader(tmp_path)
    target_input = AlignmentTarget("q", ("-",), b">q\nMKVLAAGIV\n")
    done = mark_done(load(loader, target_input))
    assert inspect_target(target_input, loader.identities) == (9, None)
    load(loader, target_input)
    assert not done.exists()


def test_query_is_inspected_without_a_database(tmp_path: Path) -> None:
    identities = make_loader(tmp_path).identities
    assert inspect_target(QUERY, identities) == (len(UBIQUITIN), None)
    with pytest.raises(InputError, match="at least 2"):
        inspect_target(FastaRecord("q", "M"), identities)
