"""Tests of runs with complexes: next to single chains, continued, and with templates of a job."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.templates.library.structure_files import read_chains
from foldcli.errors import SomeTargetsFailed
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import (
    PredictInput,
    find_fold_targets,
    find_predict_targets,
)
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelOrigin
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.prepare.complex_stage import ComplexStage
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.runs.dry_run import inspect_target
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from model.prediction import Prediction
from msa.alignments.filter_settings import AlignmentFilter
from msa.base.errors import InputError
from msa.engines.search_settings import SearchSettings
from tests.foldcli.pipeline.complexes import (
    FIRST,
    PAIR,
    PROTEIN_A,
    PROTEIN_B,
    CountingSearcher,
    open_database,
    run_settings,
)
from tests.foldcli.pipeline.network.tiny_worker import TinyPredictor


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    return open_database(tmp_path_factory.mktemp("database"))


def find_targets(folder: Path, **files: str) -> list[tuple[str, PredictInput]]:
    """Write alignment files, and return the targets that `foldcli predict` finds in their folder."""
    for name, content in files.items():
        (folder / f"{name}.a3m").write_text(content)
    return find_predict_targets([str(folder)], False, folder, Failures(folder / "out", Shard()))


def fold_settings(out: Path, searcher: CountingSearcher, models: tuple[int, ...] = (1,)) -> RunSettings:
    """Return settings with a search."""
    alignment = AlignmentSettings(SearchSettings(), AlignmentFilter())
    search = SearchStage(searcher, alignment, show_progress=False)
    settings = run_settings(out, models, multimer_num_recycles=0)
    return replace(settings, search=search, identities=replace(settings.identities, request=search.request))


def test_complex_is_predicted_next_to_a_single_chain_and_a_damaged_file(tmp_path: Path) -> None:
    wrong = PAIR.replace("#12,9", "#12,10")
    targets = find_targets(tmp_path, pair=PAIR, wrong=wrong, single=f">q\n{FIRST}\n>x\nMKVLAAGIVQWD\n")
    out = tmp_path / "out"
    failures = Failures(out, Shard())
    with pytest.raises(SomeTargetsFailed):
        run_targets(targets, run_settings(out), failures)
    ((name, error),) = failures.failed
    assert name == "wrong" and "row 1 (101) has 21 columns, the header line declares 22" in str(error)
    done = json.loads((out / "pair/pair.done.json").read_text())
    (model,) = done["ranking"]
    assert model["tag"] == "alphafold2_multimer_v3_model_1_seed_000" and model["num_chains"] == 3
    assert 0 <= model["iptm"] <= 1 and model["num_recycles"] == 1
    assert (done["facts"]["residues"], done["facts"]["alignment_rows"], done["facts"]["chains"]) == (30, 5, 3)
    lines = (out / f"pair/pair_unrelaxed_rank_001_{model['tag']}.pdb").read_text().splitlines()
    numbers = [(line[21], int(line[22:26])) for line in lines if line[12:16] == " CA "]
    assert numbers == [
        (chain, i) for chain, length in zip("ABC", (12, 9, 9), strict=True) for i in range(1, length + 1)
    ]
    (single,) = json.loads((out / "single/single.done.json").read_text())["ranking"]
    assert single["tag"] == "alphafold2_ptm_model_1_seed_000" and single["num_recycles"] == 0
    # finished results of the same settings are kept, others are refused
    target = dict(targets)["pair"]
    assert inspect_target("pair", target, run_settings(out).identities, run_settings(out).output)[1] == (
        "already done"
    )
    more = run_settings(out, multimer_num_recycles=2)
    with pytest.raises(InputError, match="num_recycle 1, now 2"):
        inspect_target("pair", target, more.identities, more.output)


class InterruptedPredictor(TinyPredictor):
    """A predictor whose run is interrupted when its second target begins."""

    def start(self, name: str, *arguments: Any) -> Callable[[], tuple[Prediction, ModelOrigin]]:
        if name == "homodimer":
            raise KeyboardInterrupt
        return super().start(name, *arguments)


@pytest.mark.slow
def test_fold_searches_each_chain_once_and_continues_after_an_interruption(
    tmp_path: Path, database: LocalSearcher
) -> None:
    (tmp_path / "q.fasta").write_text(
        f">mixed\n{PROTEIN_A}:{PROTEIN_B}:{PROTEIN_A}\n>homodimer\n{PROTEIN_A}:{PROTEIN_A}\n>x\nXX:{PROTEIN_A}\n"
    )
    out = tmp_path / "out"
    failures = Failures(out, Shard())
    targets = find_fold_targets([str(tmp_path / "q.fasta")], True, "BLOSUM62", tmp_path, failures)
    searcher = CountingSearcher(database)
    settings = fold_settings(out, searcher)
    interrupted = InterruptedPredictor(
        settings.predictor.sources, settings.predictor.settings, settings.predictor.memory
    )
    with pytest.raises(KeyboardInterrupt):
        run_targets(targets, replace(settings, predictor=interrupted), failures)
    assert sorted(searcher.sequences) == [PROTEIN_A, PROTEIN_B]
    assert [name for name, _ in failures.failed] == ["x"]
    assert "none of the twenty residues" in str(failures.failed[0][1])

    finished = (out / "mixed/mixed.done.json").read_bytes()
    with pytest.raises(SomeTargetsFailed):
        run_targets(targets, fold_settings(out, searcher), Failures(out, Shard()))
    assert len(searcher.sequences) == 2 and (out / "mixed/mixed.done.json").read_bytes() == finished
    for name, first_line, rows in (("mixed", "#31,31\t2,1", 3), ("homodimer", "#31\t2", 3)):
        lines = (out / f"{name}/{name}.a3m").read_text().splitlines()
        done = json.loads((out / f"{name}/{name}.done.json").read_text())
        assert lines[0] == first_line and done["facts"]["alignment_rows"] == rows
        assert done["ranking"][0]["num_chains"] == (3 if name == "mixed" else 2)
        assert not (out / f"{name}/.work").exists()
    hits = [line.split("\t")[:2] for line in (out / "mixed/mixed.m8").read_text().splitlines()]
    assert sorted(hits) == [["mixed_A", "a"], ["mixed_A", "c"], ["mixed_B", "b"]]
    assert (done["facts"]["search"]["hits"], done["facts"]["search"]["capped"]) == (2, None)
    # the two chains' rows of one species are paired
    assert [line for line in (out / "mixed/mixed.a3m").read_text().splitlines() if line.startswith(">a\tb")]
    (structure,) = (out / "mixed").glob("*.pdb")
    residues = [(x[21], x[17:20]) for x in structure.read_text().splitlines() if x[12:16] == " CA "]
    assert [name for chain, name in residues if chain == "B"][:4] == ["MET", "THR", "TYR", "LYS"]
    assert [name for chain, name in residues if chain == "C"][:4] == ["MET", "GLN", "ILE", "PHE"]


def write_templated_job(path: Path) -> np.ndarray:
    """Write a job of a chain with a template, another copy without one, and a chain without templates.

    Returns:
        Positions of the first two residues that the template covers, 4 and 5 of the chain.
    """
    file = Path(__file__).parents[3] / "features/templates/data/1a8o.cif.gz"
    template = {"queryIndices": [4, 5], "templateIndices": [10, 20]}
    given = {"mmcif": gzip.decompress(file.read_bytes()).decode()} | template
    chains = [(PROTEIN_A, "A", [given]), (PROTEIN_B, "B", None), (PROTEIN_A, "C", [])]
    sequences = [
        {"protein": {"id": name, "sequence": sequence, "templates": templates}}
        for sequence, name, templates in chains
    ]
    jobs = [{"name": "complex", "sequences": sequences}, {"name": "single", "sequences": sequences[:1]}]
    path.write_text(json.dumps(jobs))
    return read_chains(file)[0].positions[[10, 20]]


def test_templates_of_a_job_are_used_for_the_chain_that_they_are_given_to(
    tmp_path: Path, database: LocalSearcher, caplog: pytest.LogCaptureFixture
) -> None:
    positions = write_templated_job(tmp_path / "q.json")
    failures = Failures(tmp_path / "out", Shard())

    def read() -> dict[str, Any]:
        return dict(find_fold_targets([str(tmp_path / "q.json")], True, "BLOSUM62", tmp_path, failures))

    settings = fold_settings(tmp_path / "out", CountingSearcher(database), models=(3,))
    run_targets(list(read().items()), settings, failures)
    done = json.loads((tmp_path / "out/complex/complex.done.json").read_text())
    (used,) = done["facts"]["templates"]
    assert used["id"] == "1_A" and used["evalue"] is None and used["source"].startswith("q.json:")
    assert "A\t1_A\t1\t" in (tmp_path / "out/complex/complex_templates.tsv").read_text()
    # model 3 for single chains takes none
    assert "single: the templates of the job file are not used" in caplog.text
    assert "complex: the templates" not in caplog.text
    assert not (tmp_path / "out/single/single_templates.tsv").exists()
    # another template is another prediction, and nothing else is
    identity = settings.identities.identity
    before = identity("complex", read()["complex"])
    assert before == identity("complex", read()["complex"])
    (tmp_path / "q.json").write_text((tmp_path / "q.json").read_text().replace("[10, 20]", "[10, 21]"))
    assert before != identity("complex", read()["complex"])
    # the features of the chain alone have the template
    assert settings.search is not None
    chains = ChainStore(CacheStore(settings.features.cache, settings.search.request))
    write_templated_job(tmp_path / "q.json")
    target = TargetRun(TargetFiles("complex", tmp_path / "again"), read()["complex"])
    target.files.search_folder.mkdir(parents=True)
    features = ComplexStage(settings.features, None, chains).load(target, with_templates=True)
    mask = features["template_all_atom_mask"]
    assert np.flatnonzero(mask.any((0, 2))).tolist() == [4, 5] and not mask[1:].any()
    np.testing.assert_array_equal(features["template_all_atom_positions"][0, 4:6], positions)
    templates = FeatureStage(settings.features, None, {"single": 0}, chains)._find_templates(
        TargetRun(TargetFiles("single", tmp_path / "again"), read()["single"]), features
    )
    assert templates is not None
    np.testing.assert_array_equal(templates.features["template_all_atom_positions"][0, 4:6], positions)
