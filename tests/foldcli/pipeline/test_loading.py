"""What is loaded of targets of every kind, and which are loaded again."""

import json
from pathlib import Path

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CacheIndex
from foldcli.inputs.shard import Shard
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.alignment_request import AlignmentRequest
from foldcli.pipeline.identity import Given, Identities
from foldcli.pipeline.loading import Loaded, TargetLoader
from foldcli.pipeline.network_memory import NetworkMemory
from foldcli.pipeline.output_location import Place
from foldcli.pipeline.predictor import Predictor, PredictSettings
from foldcli.pipeline.search_stage import SearchStep
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.errors import InputError
from msa.io.fasta import FastaRecord
from msa.search.alignment_filter import AlignmentFilter
from msa.search.settings import SearchSettings

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERY = FastaRecord("q", UBIQUITIN)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> SearchStep:
    folder = tmp_path_factory.mktemp("database")
    (folder / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>half\n{UBIQUITIN[:40]}\n")
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    database = TargetDatabase.open(folder / "db")
    request = AlignmentRequest.of(database, SearchSettings(), AlignmentFilter())
    return SearchStep(database, CpuEngine(), request)


def loader_of(tmp_path: Path, step: SearchStep | None = None, overwrite: bool = False) -> TargetLoader:
    settings = PredictSettings(num_recycle=0, max_seq=8, max_extra_seq=6)
    predictor = Predictor(find_parameters("demo", (3,), "auto"), settings, NetworkMemory("cpu"), False)
    place = Place(tmp_path / "out", "default", Shard(), overwrite)
    identities = Identities([], settings, None if step is None else step.request)
    return TargetLoader(place, tmp_path / "cache", predictor, identities, step=step)


def loaded_of(loader: TargetLoader, given: Given) -> Loaded:
    loaded = loader.load(("q", given))
    assert loaded is not None
    return loaded


def finish(loaded: Loaded) -> Path:
    """As if the network had been at it."""
    path = loaded.target.files.path("done")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"fingerprint": loaded.key}))
    return path


def test_a_finished_target_is_loaded_again_only_if_asked_for(tmp_path: Path, step: SearchStep) -> None:
    loader = loader_of(tmp_path, step)
    first = loaded_of(loader, QUERY).target
    assert (first.facts["search"]["hits"], first.facts["feature_cache_hit"]) == (2, False)
    ((cached,),) = CacheIndex(tmp_path / "cache").targets.values()
    files = [AlignmentTarget("q", (str(path),)) for path in (first.files.path("alignment"), cached.path)]
    keys = set()
    for given in (QUERY, cached, *files):
        loaded = loaded_of(loader, given)
        # one alignment, whichever way it came
        assert loaded.target.facts["feature_cache_hit"]
        assert loaded.target.facts["alignment_rows"] == first.facts["alignment_rows"]
        assert loader.identities.look(given) == (len(UBIQUITIN), loaded.key)
        keys.add(loaded.key)
        done = finish(loaded)
        assert loader.load(("q", given)) is None and done.is_file()
        assert loaded_of(loader_of(tmp_path, step, overwrite=True), given).key == loaded.key
        assert not done.exists()
    assert len(keys) == 4


def test_what_is_read_once_is_never_taken_for_finished(tmp_path: Path) -> None:
    loader = loader_of(tmp_path)
    given = AlignmentTarget("q", ("-",), b">q\nMKVLAAGIV\n")
    done = finish(loaded_of(loader, given))
    assert loader.identities.look(given) == (9, None)
    loaded_of(loader, given)
    assert not done.exists()


def test_a_query_is_looked_at_without_a_database(tmp_path: Path) -> None:
    assert loader_of(tmp_path).identities.look(QUERY) == (len(UBIQUITIN), None)
    with pytest.raises(InputError, match="at least 2"):
        loader_of(tmp_path).identities.look(FastaRecord("q", "M"))
