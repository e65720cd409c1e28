"""The template stage: the three sources of templates, and the options that select them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.templates.library.structure_files import read_chains
from features.templates.table import write_template_table
from foldcli.errors import OptionError
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings, TemplateOptions
from foldcli.report import ReportSettings
from msa.alignments.files import parse_alignment
from tests.networks import tiny_parameters

NONE = {
    "templates": None,
    "no_templates": False,
    "max_template_date": None,
    "exclude_self": False,
    "custom_template_path": None,
    "pdb_hit_file": None,
    "local_pdb_path": None,
}


def options(**values: Any) -> TemplateOptions:
    result = TemplateOptions.from_options(NONE | values, threads=1)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def structures(root: Path) -> Path:
    return root / "tests/features/templates/data"


@pytest.fixture(scope="module")
def features(structures: Path) -> dict[str, np.ndarray]:
    """Return the features of trypsin (1gbt) without homologs."""
    (chain,) = read_chains(structures / "1gbt.cif.gz")
    return make_features([parse_alignment(f">trypsin\n{chain.sequence}\n".encode())])


def test_embedded_library_has_relatives_of_trypsin(features: dict[str, np.ndarray], tmp_path: Path) -> None:
    stage = TemplateStage.open(options(), tmp_path)
    templates = stage.find("trypsin", features)
    assert len(templates.hits.templates) == 4
    assert templates.hits.templates[0].identity > 0.3
    assert templates.features["template_aatype"].shape == (4, 223)
    assert templates.facts()[0].id == templates.hits.templates[0].id
    assert not list(tmp_path.iterdir())


def test_custom_structures_are_used_whatever_their_e_value(
    structures: Path, features: dict[str, np.ndarray], tmp_path: Path
) -> None:
    stage = TemplateStage.open(options(custom_template_path=structures / "4zhl.cif.gz"), tmp_path)
    templates = stage.find("trypsin", features)
    assert [template.id for template in templates.hits.templates] == ["4zhl_U"]
    stage = TemplateStage.open(options(custom_template_path=structures / "4cup.cif.gz"), tmp_path)
    candidates = stage.find("trypsin", features).hits.candidates
    assert [template.id for template in candidates] == ["4cup_A"]


def test_hit_file_with_a_mirror(structures: Path, features: dict[str, np.ndarray], tmp_path: Path) -> None:
    table = tmp_path / "hits.m8"
    table.write_text("trypsin\t4zhl_U\ntrypsin\t9xyz_A\nother\t1a7g_E\n")
    stage = TemplateStage.open(options(pdb_hit_file=table, local_pdb_path=structures), tmp_path)
    templates = stage.find("trypsin", features)
    assert [template.id for template in templates.hits.templates] == ["4zhl_U"]
    stream = io.StringIO()
    write_template_table(stream, templates.hits, templates.unusable)
    assert stream.getvalue().splitlines()[-1].startswith("9xyz_A\tno\t")
    without = stage.find("third", features)
    assert without.features["template_aatype"].shape == (0, 223)


def test_identity_depends_on_library_and_settings(structures: Path, tmp_path: Path) -> None:
    def identity(**values: Any) -> dict[str, Any]:
        return TemplateStage.open(options(**values), tmp_path).identity()

    table = tmp_path / "hits.m8"
    table.write_text("q\t4zhl_U\n")
    identities = [
        identity(),
        identity(max_template_date="2020-01-01"),
        identity(exclude_self=True),
        identity(custom_template_path=structures / "4zhl.cif.gz"),
        identity(pdb_hit_file=table, local_pdb_path=structures),
    ]
    assert all(one != other for k, one in enumerate(identities) for other in identities[:k])
    assert identity() == identities[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"templates": Path("a"), "custom_template_path": Path("b")}, "exclude each other"),
        ({"templates": Path("a"), "no_templates": True}, "--templates and --no-templates exclude"),
        ({"pdb_hit_file": Path("a")}, "need each other"),
        ({"max_template_date": "2020"}, "--max-template-date is '2020'"),
    ],
)
def test_contradicting_options_are_usage_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(**values)


def test_no_templates_disables_the_stage() -> None:
    assert TemplateOptions.from_options(NONE | {"no_templates": True}, threads=1) is None


@pytest.mark.parametrize("number", [1, 3])
def test_run_publishes_the_table_if_a_network_takes_templates(
    number: int, structures: Path, tmp_path: Path
) -> None:
    (chain,) = read_chains(structures / "1a7g.cif.gz")
    alignment = tmp_path / "q.a3m"
    alignment.write_text(f">q\n{chain.sequence}\n")
    predict = AlphaFold2Settings(num_recycles=0, max_seq=16, max_extra_seq=16)
    sources = find_parameters(tiny_parameters(), (number,), "auto")
    predictor = Predictor(sources, predict, NetworkMemory("cpu"))
    stage = TemplateStage.open(options(custom_template_path=structures / "1a7g.cif.gz"), tmp_path / "cache")
    parameters = [{"label": sources[0].label, "network": "tiny", "content": "tiny"}]
    output = OutputSettings(tmp_path / "out", "default", Shard(), False, ReportSettings(False, False))
    settings = RunSettings(
        output,
        FeatureSettings(tmp_path / "cache"),
        predictor,
        TargetIdentities(sources, parameters, predict, templates=stage.identity()),
        templates=stage,
    )
    run_targets([("q", AlignmentTarget("q", (str(alignment),)))], settings, Failures(output.folder, Shard()))
    files = output.files("q")
    done = json.loads(files.path("done").read_text())
    assert done["settings"]["templates"]["library"] == stage.library.checksums
    if number == 3:
        assert not files.path("templates").exists()
        return
    assert files.path("templates").read_text().splitlines()[1].startswith("1a7g_E\t1\t1.000\t1.000\t")
    (used,) = done["facts"]["templates"]
    assert (used["id"], used["identity"], used["coverage"]) == ("1a7g_E", 1.0, 1.0)
    assert "templates" in [cost["stage"] for cost in done["stages"]]


def test_library_without_dates_leaves_no_templates_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not TemplateStage.open(options(), tmp_path).has_no_dates
    with caplog.at_level("WARNING", "foldcli"):
        stage = TemplateStage.open(options(max_template_date="2021-09-30"), tmp_path)
    assert stage.has_no_dates
    assert "has no release dates" in caplog.text
