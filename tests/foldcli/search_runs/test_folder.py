"""Test of searched complexes: their alignments are what fold predicts from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.cache.entry import CorruptEntryError
from foldcli.errors import SomeTargetsFailed
from foldcli.inputs.alignment_targets import AlignmentTarget, starts_as_complex
from foldcli.inputs.cached_targets import find_all_cached_targets, read_complex_entry
from foldcli.inputs.complexes import split_chains
from foldcli.inputs.failures import Failures
from foldcli.inputs.queries import QuerySources
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import (
    TargetInput,
    find_feature_targets,
    find_predict_targets,
    is_complex,
)
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.prepare.cached_features import CacheTask
from foldcli.pipeline.prepare.complex_stage import ComplexStage
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.settings import FeatureSettings
from foldcli.search_runs.folder import print_alignment, write_alignments
from foldcli.search_runs.settings import SearchRun
from foldcli.search_runs.table import write_table
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.m8 import DEFAULT_COLUMNS
from msa.base.errors import InputError
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import JoinedRecord
from tests.foldcli.pipeline.complexes import PROTEIN_A, PROTEIN_B, CountingSearcher, open_database


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    return open_database(tmp_path_factory.mktemp("database"))


def test_search_of_complexes_writes_what_fold_predicts_from(
    tmp_path: Path, database: LocalSearcher, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = tmp_path / "q.fasta"
    queries.write_text(f">mixed\n{PROTEIN_A}:{PROTEIN_B}:{PROTEIN_A}\n>bb\n{PROTEIN_B}:{PROTEIN_B}\n")
    searcher, alignment = CountingSearcher(database), AlignmentSettings(SearchSettings(), AlignmentFilter())
    run = SearchRun(
        QuerySources([str(queries)], True, "BLOSUM62"),
        alignment,
        lambda: searcher,
        Shard(),
        None,
        False,
        tmp_path / "cache",
    )
    folder = tmp_path / "alignments"
    for _ in range(2):
        write_alignments(run, folder, "a3m")
        assert sorted(searcher.sequences) == [PROTEIN_A, PROTEIN_B]
    with pytest.raises(SomeTargetsFailed):
        write_alignments(run, tmp_path / "sto", "sto")
    write_table(run, str(tmp_path / "t.m8"), DEFAULT_COLUMNS)
    hits = [line.split("\t")[0] for line in (tmp_path / "t.m8").read_text().splitlines()]
    assert hits == ["mixed_A", "mixed_A", "mixed_B"]
    queries.write_text(queries.read_text().partition(">bb")[0])
    print_alignment(run, "a3m")
    assert capsys.readouterr().out == (folder / "mixed.a3m").read_text()
    with pytest.raises(InputError, match="'mixed' has 3 protein chains; --save-profile takes single chains"):
        print_alignment(replace(run, save_profile=str(tmp_path / "p")), "a3m")

    # features from the alignment and from the cache are those of fold
    settings, failures = FeatureSettings(tmp_path / "features"), Failures(tmp_path, Shard())
    given = dict(find_predict_targets([str(folder)], False, tmp_path, failures))
    for name, target in find_feature_targets([str(folder)], False, failures):
        assert isinstance(target, AlignmentTarget)
        cached = CacheTask(target, settings).add()
        assert (cached.was_cached, cached.rows) == (False, {"mixed": 6, "bb": 2}[name])
        assert CacheTask(target, settings).add().was_cached
    entries = {target.name: target for target in find_all_cached_targets(settings.cache, failures)}
    chains = ChainStore(CacheStore(tmp_path / "cache", AlignmentRequest(searcher.checksums, alignment)))
    stage = ComplexStage(settings, None, chains)
    for name, sequences in (("mixed", [PROTEIN_A, PROTEIN_B, PROTEIN_A]), ("bb", [PROTEIN_B] * 2)):
        searched = split_chains(JoinedRecord(name, ":".join(sequences), "", "", 1))
        entry = entries[name]
        assert is_complex(entry) and entry.residues() == 31 * len(sequences)
        file = AlignmentTarget(name, (str(entry.path),))
        inputs: list[TargetInput] = [searched, given[name], entry, replace(file, is_complex=True)]
        assert starts_as_complex(file)
        expected, *others = (
            stage.load(TargetRun(TargetFiles(name, tmp_path / "out"), each), False) for each in inputs
        )
        assert expected["asym_id"][-1] == len(sequences)
        for features in others:
            assert features.keys() == expected.keys()
            for key, value in expected.items():
                assert np.array_equal(features[key], value), key
    # a damaged entry is computed again from its file
    content = bytearray(entries["bb"].path.read_bytes())
    content[-1] ^= 1
    entries["bb"].path.write_bytes(content)
    assert entries["bb"].load_complex_rows().chains == [PROTEIN_B] * 2
    assert read_complex_entry(entries["bb"].path).chains == [PROTEIN_B] * 2
    (folder / "bb.a3m").unlink()
    entries["bb"].path.write_bytes(content)
    with pytest.raises(CorruptEntryError, match="checksum does not match"):
        entries["bb"].load_complex_rows()
