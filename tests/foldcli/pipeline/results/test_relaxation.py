"""Relaxation in runs: which models, names in both layouts, resumption, failures, and a missing OpenMM."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
import pytest
from click.testing import CliRunner

from features.chemistry.residues import encode_query
from features.templates.library.structure_files import read_chains
from foldcli.commands.predict import command as predict
from foldcli.families.registry import check_parameters
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.shard import Shard
from foldcli.outputs.done import DoneRecord, FinishedTarget
from foldcli.outputs.facts import ExpectedAccuracy, Facts, NetworkFacts
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.outputs.model_files import (
    ModelOrigin,
    ModelResult,
    PredictedModel,
    publish_models,
    relaxed_path,
    restage_model,
    write_model,
    write_result,
)
from foldcli.outputs.target import TargetRun
from foldcli.params.parameters import TEMPLATE_COPY
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.results.publishing import FinishTask, finish_target
from foldcli.pipeline.results.relaxation import (
    RelaxStage,
    check_relaxation,
    choose_relax_device,
    relax_settings,
)
from foldcli.pipeline.results.stage import ResultStage
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.plan import TargetPlan, plan_target
from foldcli.pipeline.targets.settings import OutputSettings, RelaxOptions
from foldcli.report import ReportSettings
from model.prediction import InterfaceContacts, Prediction
from msa.base.errors import MissingError
from msa.base.json_files import to_record
from tests.complex_scores import made_up_scores
from tests.predictions import protein_prediction

REPORT = ReportSettings(False, False)
GOOD, BAD, WORST = (f"alphafold2_ptm_model_{number}_seed_000" for number in (1, 2, 3))
PLDDT = {GOOD: 90.0, BAD: 80.0, WORST: 70.0}

needs_openmm = pytest.mark.skipif(
    not (importlib.util.find_spec("openmm") and importlib.util.find_spec("pdbfixer")),
    reason="needs the extra `relax`",
)


@pytest.fixture(scope="module")
def peptide(root: Path) -> Prediction:
    """Return twelve residues of trypsin in the form of a prediction."""
    (chain,) = read_chains(root / "tests/features/templates/data/1gbt.cif.gz")
    part = slice(20, 32)
    aatype = encode_query(chain.sequence[part])
    return protein_prediction(aatype, chain.positions[part], chain.mask[part], np.full(12, 50.0))


def model_of(files: TargetFiles, tag: str, peptide: Prediction) -> PredictedModel:
    prediction = replace(peptide, plddt=np.full(len(peptide.aatype), PLDDT[tag]))
    if tag == BAD:  # all atoms are at one place
        prediction = replace(prediction, positions=np.zeros_like(peptide.positions))
    origin = ModelOrigin(files.name, "a network", False)
    return PredictedModel(files.staging_folder, tag, f"key of {tag}", prediction, origin, 1.0)


def finish_task(files: TargetFiles, tags: Sequence[str]) -> FinishTask:
    models = {tag: f"key of {tag}" for tag in tags}
    facts = Facts(residues=12, alignment_rows=1)
    return FinishTask(files, "key", {}, "auto", models, [], [], facts, REPORT, False)


def run(files: TargetFiles, peptide: Prediction, tags: Sequence[str], num_relax: int) -> TargetRun:
    """Write, relax and finish models in worker processes."""
    target = TargetRun(files, AlignmentTarget("q", ("q.a3m",)), facts=Facts(residues=12, alignment_rows=1))
    errors: list[BaseException] = []
    settings = replace(relax_settings(), max_iterations=50)
    stage = ResultStage(
        WorkerPool(1), 1, "auto", REPORT, False, RelaxStage(num_relax, WorkerPool(1), settings),
        on_model=lambda *_: None, on_finished=lambda *_: None,
        on_failed=lambda _, error: errors.append(error),
    )  # fmt: skip
    with stage as results:
        for tag in tags:
            results.add_model(target, model_of(files, tag, peptide))
        results.finish(target, _Plan(finish_task(files, tags)))  # type: ignore[arg-type]
    assert not errors
    return target


class _Plan:
    """The part of a TargetPlan that finishing a target needs."""

    def __init__(self, task: FinishTask) -> None:
        self.fingerprint, self.identity, self.models = task.fingerprint, task.settings, task.models


def done(files: TargetFiles) -> FinishedTarget:
    finished = FinishedTarget.read(files.path("done"))
    assert finished is not None
    return finished


@needs_openmm
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["default", "colabfold"])
def test_best_models_are_relaxed(layout: LayoutName, peptide: Prediction, tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, layout)
    target = run(files, peptide, (WORST, GOOD), num_relax=1)
    assert not target.relax_failures
    relaxed = files.structures_folder / f"q_relaxed_rank_001_{GOOD}.pdb"
    assert [path.name for path in files.structures_folder.glob("*_relaxed_*")] == [relaxed.name]
    (residue, *_) = gemmi.read_structure(str(relaxed))[0]["A"]
    assert residue[0].b_iso == PLDDT[GOOD]
    assert any(atom.is_hydrogen() for atom in residue)
    best, other = done(files).ranking
    assert best.relaxation is not None and other.relaxation is None
    assert best.relaxation["energy_after"] < best.relaxation["energy_before"]
    assert best.relaxation["violations_after"] == {"clashes": 0, "bonds": 0, "angles": 0}
    assert best.relaxation["geometry_after"]["twisted_peptides"] == 0
    assert best.relaxation["worse"] == [] and target.warnings == []
    assert "relax" in [cost.stage for cost in target.costs]


@needs_openmm
@pytest.mark.slow
def test_chains_of_a_complex_keep_names_and_numbers(peptide: Prediction, tmp_path: Path) -> None:
    # the second chain is the first seven residues of the peptide, far enough away
    is_present = peptide.atom_positions.any(axis=-1)
    away = peptide.atom_positions[:7] + np.float32(30)
    nothing = np.zeros((2, 2))
    no_contacts = InterfaceContacts(*(np.zeros(0, np.int64),) * 2, np.zeros(0), np.zeros((0, 2)), 0)
    dimer = protein_prediction(
        aatype=np.append(peptide.aatype, peptide.aatype[:7]),
        atom_positions=np.concatenate([peptide.atom_positions, away]),
        atom_mask=np.concatenate([is_present, is_present[:7]]),
        plddt=np.append(peptide.plddt, peptide.plddt[:7]),
        residue_index=np.r_[np.arange(12), np.arange(7)],
        asym_id=np.repeat([1, 2], [12, 7]),
        scores=made_up_scores(nothing, no_contacts),
    )
    files = TargetFiles("q", tmp_path)
    target = run(files, dimer, (GOOD,), num_relax=1)
    assert not target.relax_failures
    (relaxed,) = files.structures_folder.glob("*_relaxed_*")
    model = gemmi.read_structure(str(relaxed))[0]
    assert [(chain.name, [residue.seqid.num for residue in chain]) for chain in model] == [
        ("A", list(range(1, 13))),
        ("B", list(range(1, 8))),
    ]
    assert [residue.name for residue in model["B"]] == [residue.name for residue in model["A"]][:7]
    first = done(files).ranking[0]
    assert first.iptm == 0.4 and first.relaxation is not None
    assert first.relaxation["violations_after"] == {"clashes": 0, "bonds": 0, "angles": 0}


@needs_openmm
@pytest.mark.slow
def test_failure_keeps_the_unrelaxed_model(peptide: Prediction, tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path)
    target = run(files, peptide, (GOOD, BAD), num_relax=2)
    (reason,) = target.relax_failures
    assert reason.startswith(f"{BAD} was not relaxed: ") and "\n" not in reason
    assert target.warnings == target.relax_failures
    assert files.model_path("pdb", 2, BAD).is_file() and not files.model_path("relaxed_pdb", 2, BAD).exists()
    assert files.model_path("relaxed_pdb", 1, GOOD).is_file()


def publish(files: TargetFiles, peptide: Prediction, tags: Sequence[str]) -> DoneRecord:
    """Finish a target whose first model has a relaxed structure."""
    for tag in tags:
        write_model(model_of(files, tag, peptide))
    relaxed_path(files.staging_folder, tags[0]).write_text(f"relaxed {tags[0]}\n")
    return finish_target(finish_task(files, tags))


def test_relaxed_structure_keeps_its_model_when_ranks_change(peptide: Prediction, tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "colabfold")
    (result,) = publish(files, peptide, (WORST,)).ranking
    assert files.model_path("relaxed_pdb", 1, WORST).read_text() == f"relaxed {WORST}\n"
    restage_model(files, 1, result)
    better = write_model(model_of(files, GOOD, peptide))
    publish_models([better, result], files)
    assert [path.name for path in tmp_path.glob("*_relaxed_*")] == [f"q_relaxed_rank_002_{WORST}.pdb"]
    # overwritten models lose their relaxed structures
    relaxed_path(files.staging_folder, WORST).unlink()
    publish_models([better, result], files)
    assert not list(tmp_path.glob("*_relaxed_*"))


def test_warnings_that_only_the_models_show_are_recorded(peptide: Prediction, tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path)
    result = write_model(model_of(files, GOOD, peptide))
    write_result(files.staging_folder, replace(result, relaxation={"worse": ["twisted peptides 1 to 5"]}))
    relaxed_path(files.staging_folder, GOOD).write_text("relaxed\n")
    expected = ExpectedAccuracy(percentile_10=25.0, percentile_90=57.0, plddt_error=4.0)
    task = finish_task(files, (GOOD,))
    facts = Facts(residues=12, alignment_rows=1, network=NetworkFacts(expected_lddt=expected))
    disagreement, worse = finish_target(replace(task, facts=facts)).warnings
    message = "mean pLDDT 90, but lDDT-CA 25 to 57 is expected of such inputs: rely on pLDDT, "
    assert disagreement == f"{message}whose mean error was 4"
    assert worse == f"{GOOD}: worse after relaxation: twisted peptides 1 to 5; both structures are kept"
    assert files.model_path("relaxed_pdb", 1, GOOD).is_file() and files.model_path("pdb", 1, GOOD).is_file()


def plan(files: TargetFiles, alignment: Path, num_relax: int) -> TargetPlan:
    sources = [TEMPLATE_COPY]
    identities = TargetIdentities(sources, check_parameters(sources), AlphaFold2Settings())
    target = AlignmentTarget("q", (str(alignment),))
    output = OutputSettings(files.out, "default", Shard(), False, REPORT, relaxation=RelaxOptions(num_relax))
    return plan_target(files, target, identities, output)


def test_target_is_finished_once_its_best_models_are_relaxed(peptide: Prediction, tmp_path: Path) -> None:
    alignment = tmp_path / "q.a3m"
    alignment.write_text(">q\nMKV\n")
    files = TargetFiles("q", tmp_path / "out")
    first = plan(files, alignment, 1)
    (job,) = first.jobs
    model = replace(model_of(files, GOOD, peptide), tag=job.tag, fingerprint=first.models[job.tag])
    write_model(model)
    task = replace(finish_task(files, ()), fingerprint=first.fingerprint, models=first.models)
    finish_target(replace(task, settings=first.identity))
    assert plan(files, alignment, 0).is_finished
    assert not plan(files, alignment, 1).is_finished
    assert plan(files, alignment, 1).stage_kept_models(files)[1] == []  # nothing is predicted again
    files.model_path("relaxed_pdb", 1, job.tag).touch()
    assert plan(files, alignment, 1).is_finished


@pytest.mark.parametrize("was_published", [True, False])
def test_result_of_a_relaxation_without_its_structure_is_discarded(
    peptide: Prediction, tmp_path: Path, was_published: bool
) -> None:
    """The structure was deleted, or the relaxation was killed before it was written."""
    files = TargetFiles("q", tmp_path)
    if was_published:
        (result,) = publish(files, peptide, (GOOD,)).ranking
        files.model_path("relaxed_pdb", 1, GOOD).unlink()
        restage_model(files, 1, replace(result, relaxation={"rounds": 1}))
    else:
        result = write_model(model_of(files, GOOD, peptide))
        write_result(files.staging_folder, replace(result, relaxation={"rounds": 1}))
    assert finish_target(finish_task(files, (GOOD,))).ranking[0].relaxation is None


def test_relaxed_structure_without_its_model_is_not_published(tmp_path: Path) -> None:
    alignment = tmp_path / "q.a3m"
    alignment.write_text(">q\nMKV\n")
    files = TargetFiles("q", tmp_path / "out")
    first = plan(files, alignment, 1)
    left = relaxed_path(files.staging_folder, first.jobs[0].tag)
    left.parent.mkdir(parents=True)
    left.touch()
    assert first.stage_kept_models(files)[1] == first.jobs and not left.exists()


@pytest.mark.parametrize(
    ("values", "expected", "limit"),
    [
        ({"use_gpu_relax": False}, 0, 0),
        ({"num_relax": 0}, 0, 0),
        ({"num_relax": 2}, 2, 2),
        # all, also those of the seeds that a job names
        ({"amber": True}, 6, None),
        ({"amber": True, "num_relax": 1}, 1, 1),
    ],
)
def test_num_relax_and_amber_determine_the_number_of_models(
    values: dict[str, Any], expected: int, limit: int | None
) -> None:
    defaults = {"num_relax": None, "amber": False, "use_gpu_relax": True, "models": (1, 2, 3), "num_seeds": 2}
    defaults["num_models"] = None
    options = RelaxOptions.from_options(defaults | values)
    assert (options.num_models, options.limit) == (expected, limit)


def test_missing_openmm_is_reported_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model.relax.amber", None)
    out = tmp_path / "out"
    result = CliRunner().invoke(predict, [str(tmp_path / "q.a3m"), "--num-relax", "1", "-o", str(out)])
    assert isinstance(result.exception, MissingError)
    assert "pip install 'foldcli[relax]'" in str(result.exception)
    assert not out.exists()
    check_relaxation(RelaxOptions(0, use_gpu=True))  # nothing is needed


@needs_openmm
@pytest.mark.slow
def test_missing_gpu_is_an_error() -> None:
    from model.relax.amber import RelaxError, select_platform

    try:
        select_platform("gpu")
    except RelaxError:
        with pytest.raises(MissingError, match="OpenMM can use no GPU"):
            check_relaxation(RelaxOptions(1, use_gpu=True))
        assert choose_relax_device("auto") == "cpu"
    else:
        assert choose_relax_device("auto") == "gpu"


def test_damaged_relaxation_is_an_error() -> None:
    content = {"tag": "a", "plddt": 1.0, "ptm": None, "num_recycles": 0, "seconds": 1.0, "fingerprint": "b"}
    assert to_record(content, ModelResult).relaxation is None
    for damaged in (3, {"worse": 3}, {"worse": [3]}):
        with pytest.raises(ValueError, match="relaxation"):
            to_record(content | {"relaxation": damaged}, ModelResult)
