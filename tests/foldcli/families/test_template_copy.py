"""Runs that copy templates: what files and pages say, resumption, and targets without a template."""

import json
import re
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
import pytest

from features.chemistry.residues import CA
from features.templates.candidates import TemplateCandidate, TemplateHits
from features.templates.homology import copy_best_template
from features.templates.library.structure_files import read_chains
from foldcli.errors import OptionError, SomeTargetsFailed
from foldcli.families.protocols import NetworkJob
from foldcli.families.registry import check_parameters, find_family
from foldcli.families.settings import AlphaFold2Settings, Job
from foldcli.families.template_copy import Copies
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import LayoutName
from foldcli.params.parameters import TEMPLATE, TEMPLATE_COPY, UNTRAINED
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.runs.dry_run import DONE, estimator, inspect_target
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings, TemplateOptions
from foldcli.report import ReportSettings
from model.output.residues import format_mmcif

ORIGIN = "PDB 1A7G_E, 98 % identity, 100 % of the residues"


@pytest.fixture(scope="module")
def sequence(root: Path) -> str:
    """Return the sequence of 1a7g with two substitutions."""
    (chain,) = read_chains(root / "tests/features/templates/data/1a7g.cif.gz")
    return chain.sequence[:30] + "WW" + chain.sequence[32:]


def settings_of(folder: Path, root: Path, layout: LayoutName = "default") -> RunSettings:
    values: dict[str, Any] = {
        "templates": root / "tests/features/templates/data/1a7g.cif.gz",
        "no_templates": False,
        "max_template_date": None,
        "exclude_self": False,
        "custom_template_path": None,
        "pdb_hit_file": None,
        "local_pdb_path": None,
    }
    options = TemplateOptions.from_options(values, threads=1)
    assert options is not None
    stage = TemplateStage.open(options, folder / "cache")
    copier = Predictor([TEMPLATE_COPY], AlphaFold2Settings(num_recycles=0), NetworkMemory("cpu"))
    output = OutputSettings(folder / layout, layout, Shard(), False, ReportSettings(True, False))
    identities = TargetIdentities(
        copier.sources, check_parameters(copier.sources), copier.settings, templates=stage.identity()
    )
    return RunSettings(output, FeatureSettings(folder / "cache"), copier, identities, templates=stage)


def target(folder: Path, name: str, sequence: str) -> tuple[str, AlignmentTarget]:
    path = folder / f"{name}.a3m"
    path.write_text(f">{name}\n{sequence}\n")
    return name, AlignmentTarget(name, (str(path),))


@pytest.mark.parametrize("layout", ["default", pytest.param("colabfold", marks=pytest.mark.slow)])
def test_files_name_the_template_and_other_targets_continue(
    layout: LayoutName, sequence: str, root: Path, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, root, layout)
    targets = [target(tmp_path, "q", sequence), target(tmp_path, "none", "MKWP" * 12)]
    failures = Failures(settings.output.folder, Shard())
    with pytest.raises(SomeTargetsFailed):
        run_targets(targets, settings, failures)
    ((name, error),) = failures.failed
    assert (name, str(error)) == ("none", "no usable template to copy: the search found no candidate")

    files = settings.output.files("q")
    structures = [files.model_path(kind, 1, "template_copy") for kind in ("pdb", "cif")]
    assert structures[0].name == "q_unrelaxed_rank_001_template_copy.pdb"
    done = json.loads(files.path("done").read_text())
    (model,) = done["ranking"]
    assert model["copied_from"] == ORIGIN
    assert done["settings"]["predict"] == {"method": TEMPLATE}
    assert [cost["stage"] for cost in done["stages"]] == ["features", "templates", "copy", "report"]
    scores = json.loads(files.model_path("scores", 1, "template_copy").read_text())
    assert scores.keys() == {"plddt", "copied_from"}
    assert scores["copied_from"] == ORIGIN
    assert model["plddt"] == pytest.approx(np.mean(scores["plddt"]), abs=0.01)
    summary = (settings.output.folder / "summary.tsv").read_text().splitlines()
    assert dict(zip(*(line.split("\t") for line in summary), strict=True))["copied_from"] == ORIGIN
    page = files.path("report").read_text()
    assert f"Copied from {ORIGIN}: no network was run." in page
    index = (settings.output.folder / "index.html").read_text()
    assert f"copied from {ORIGIN}" in index
    visible = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    for text in (visible, *(path.read_text() for path in structures), json.dumps(done), json.dumps(scores)):
        assert ORIGIN.split(",")[0] in re.sub(r"\nREMARK   6", "", text)
        assert "predicted" not in text.lower()
        assert UNTRAINED not in text


def test_structures_name_the_copied_template_only(root: Path) -> None:
    (chain,) = read_chains(root / "tests/features/templates/data/1a7g.cif.gz")
    length = len(chain.sequence)
    pairs = np.repeat(np.arange(length)[:, None], 2, axis=1)
    candidates = [
        TemplateCandidate(
            0, name, "PDB", None, 1e-9, 1.0, 1, paired, 1, paired, pairs[:paired], paired / length
        )
        for name, paired in (("1abc_A", length // 2), ("1a7g_E", length))
    ]
    model = copy_best_template(TemplateHits(chain.sequence, candidates, [chain, chain]))
    assert model is not None
    family = find_family(TEMPLATE)
    job, settings = Job(TEMPLATE_COPY, 0, "template_copy"), AlphaFold2Settings(num_recycles=0)
    work = NetworkJob("q", job, model, settings, lambda done, total: None)
    (prediction,) = Copies().start(work, NetworkMemory("cpu"))()
    origin = family.origin("q", job, model, prediction, settings)
    text = format_mmcif(prediction, origin.provenance, origin.templates)
    block = gemmi.cif.read_string(text).sole_block()
    assert list(block.find_values("_ma_template_ref_db_details.db_accession_code")) == ["1A7G"]
    assert "'copy of the template'" in text and "prediction of" not in text


@pytest.mark.slow
def test_atoms_are_those_of_the_template(sequence: str, root: Path, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, root)
    failures = Failures(settings.output.folder, Shard())
    # residues before and after the template are left out
    run_targets([target(tmp_path, "q", "GSGSGS" * 3 + sequence)], settings, failures)
    files = settings.output.files("q")
    residues = gemmi.read_structure(str(files.model_path("pdb", 1, "template_copy")))[0]["A"]
    assert [residue.seqid.num for residue in residues] == list(range(19, 19 + len(sequence)))
    (chain,) = read_chains(root / "tests/features/templates/data/1a7g.cif.gz")
    alphas = [residue.find_atom("CA", "*").pos.tolist() for residue in residues]
    np.testing.assert_allclose(alphas, chain.positions[:, CA], atol=0.02)
    scores = json.loads(files.model_path("scores", 1, "template_copy").read_text())
    assert scores["plddt"][:18] == [0] * 18
    assert min(scores["plddt"][18:]) > 30


@pytest.mark.slow
def test_finished_copy_is_not_made_again(sequence: str, root: Path, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, root)
    named_inputs = [target(tmp_path, "q", sequence)]
    run_targets(named_inputs, settings, Failures(settings.output.folder, Shard()))
    files = settings.output.files("q")
    before = files.path("done").read_bytes()
    assert inspect_target(*named_inputs[0], settings.identities, settings.output)[1] == DONE
    run_targets(named_inputs, settings, Failures(settings.output.folder, Shard()))
    assert files.path("done").read_bytes() == before
    # a deleted structure is copied again
    pdb = files.model_path("pdb", 1, "template_copy")
    content = pdb.read_bytes()
    pdb.unlink()
    run_targets(named_inputs, settings, Failures(settings.output.folder, Shard()))
    assert pdb.read_bytes() == content


def test_dry_run_has_no_estimates_of_copies() -> None:
    copier = Predictor([TEMPLATE_COPY], AlphaFold2Settings(num_recycles=0), NetworkMemory("cpu"))
    identities = TargetIdentities(copier.sources, check_parameters(copier.sources), copier.settings)
    assert estimator(copier, identities)(100, AlignmentTarget("a", ("a.a3m",))) is None


def test_no_templates_with_params_template_is_a_usage_error() -> None:
    with pytest.raises(OptionError, match="--params template and --no-templates exclude each other"):
        find_family(TEMPLATE).check_options({"no_templates": True})
