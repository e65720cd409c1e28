"""Tests of the feature stage: the features of one chain from every kind of input, and what it stages."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CacheIndex
from foldcli.inputs.complexes import chain_query
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.search.hit_texts import TextMaker
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.settings import FeatureSettings
from msa.alignments.files import parse_alignment
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from tests.foldcli.pipeline.runs.runs import UBIQUITIN

A3M = ">q\nMKVLAAGIV\n>x\nMKVL-AGIV\n>y\nMKILAAGLV\n"
STOCKHOLM = "# STOCKHOLM 1.0\nq MKVLAAGIV\nx MKVL-AGIV\ny MKILAAGLV\n//\n"


def stage_of(folder: Path, store: ChainStore | None = None) -> FeatureStage:
    return FeatureStage(FeatureSettings(folder / "cache"), None, {}, store)


def target_of(folder: Path, text: str, layout: LayoutName = "default") -> TargetRun:
    (folder / "q.a3m").write_text(text)
    return TargetRun(TargetFiles("q", folder / "out", layout), AlignmentTarget("q", (str(folder / "q.a3m"),)))


def assert_equal(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_features_of_an_alignment_are_made_once_and_recorded(tmp_path: Path) -> None:
    expected = make_features([parse_alignment(A3M.encode())])
    for was_cached in (False, True):
        target = target_of(tmp_path, A3M)
        # of an interrupted run with another input
        target.files.search_folder.mkdir(parents=True)
        target.files.staged_path("alignment").write_text(">other\nAAA\n")
        features, templates = stage_of(tmp_path).load(target, with_templates=True)
        assert_equal(features, expected)
        assert templates is None
        assert target.facts.as_json() == {
            "alignment": str((tmp_path / "q.a3m").resolve()),
            "feature_cache_hit": was_cached,
            "residues": 9,
            "alignment_rows": 3,
        }
        assert [cost.stage for cost in target.costs] == ["features"]
        assert not target.files.search_folder.exists()


def test_entries_of_the_cache_have_the_features_of_their_alignment(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    expected, _ = stage.load(target_of(tmp_path, A3M), with_templates=False)
    cached = CacheIndex(tmp_path / "cache").find("q")
    for source in (cached, AlignmentTarget("q", (str(cached.path),))):
        target = TargetRun(TargetFiles("q", tmp_path / "out"), source)
        features, _ = stage.load(target, with_templates=False)
        assert_equal(features, expected)
        assert target.facts.as_json() == {"feature_cache_hit": True, "residues": 9, "alignment_rows": 3}


@pytest.mark.parametrize(
    ("layout", "text", "staged"),
    [
        ("default", A3M, None),
        ("colabfold", A3M, f"#9\t1\n{A3M}"),
        ("colabfold", f"#9\t1\n{A3M}", f"#9\t1\n{A3M}"),
        ("colabfold", STOCKHOLM, None),
    ],
)
def test_colabfolds_layout_stages_an_alignment_in_a3m(
    layout: LayoutName, text: str, staged: str | None, tmp_path: Path
) -> None:
    target = target_of(tmp_path, text, layout)
    stage_of(tmp_path).load(target, with_templates=False)
    path = target.files.staged_path("alignment")
    assert (path.read_text() if path.exists() else None) == staged


def test_invalid_alignment_names_its_file(tmp_path: Path) -> None:
    target = target_of(tmp_path, ">q\nMKV\n>x\nMKVA\n")
    with pytest.raises(InputError, match=r"q\.a3m"):
        stage_of(tmp_path).load(target, with_templates=False)
    assert target.costs == []


@pytest.mark.parametrize(("layout", "heading"), [("default", ""), ("colabfold", "#30\t1\n")])
def test_searched_query_has_its_hits_under_its_own_header(
    layout: LayoutName, heading: str, searcher: LocalSearcher, tmp_path: Path
) -> None:
    settings = AlignmentSettings(SearchSettings(), AlignmentFilter())
    store = ChainStore(CacheStore(tmp_path / "cache", AlignmentRequest(searcher.checksums, settings)))
    query = FastaRecord("q a description", UBIQUITIN[:30])
    chain = chain_query(query)
    ((_, hits),) = searcher.search_many([chain], SearchSettings())
    store.write("q", chain, TextMaker(settings)(chain, hits))
    target = TargetRun(TargetFiles("q", tmp_path / "out", layout), query)
    features, _ = stage_of(tmp_path, store).load(target, with_templates=False)
    text = target.files.staged_path("alignment").read_text()
    assert text.startswith(f"{heading}>q a description\n{UBIQUITIN[:30]}\n>half\t")
    assert_equal(features, make_features([parse_alignment(text.encode())]))
    table = target.files.staged_path("hits").read_text().splitlines()
    assert [line.split("\t")[:2] for line in table] == [["q", "ubq"], ["q", "half"]]
    assert target.facts.search is not None and target.facts.search.hits == 2
    assert target.facts.alignment_rows == len(features["msa"])
