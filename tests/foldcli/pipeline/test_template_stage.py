"""The template stage: the three sources of templates, and the options that select them."""

import io
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from features.deterministic import make_features
from features.templates.structure_files import read_chains
from foldcli.pipeline.template_stage import TemplateOptions, TemplateStage
from msa.io.alignments import parse_alignment

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
    found = stage.find("trypsin", features)
    assert len(found.hits.templates) == 4
    assert found.hits.templates[0].identity > 0.3
    assert found.features["template_aatype"].shape == (4, 223)
    assert found.facts()[0]["id"] == found.hits.templates[0].id
    assert not list(tmp_path.iterdir())


def test_custom_structures_are_used_however_remote(
    structures: Path, features: dict[str, np.ndarray], tmp_path: Path
) -> None:
    stage = TemplateStage.open(options(custom_template_path=structures / "4zhl.cif.gz"), tmp_path)
    found = stage.find("trypsin", features)
    assert [each.id for each in found.hits.templates] == ["4zhl_U"]
    stage = TemplateStage.open(options(custom_template_path=structures / "4cup.cif.gz"), tmp_path)
    candidates = stage.find("trypsin", features).hits.candidates
    assert [each.id for each in candidates] == ["4cup_A"]


def test_hit_file_with_a_mirror(structures: Path, features: dict[str, np.ndarray], tmp_path: Path) -> None:
    table = tmp_path / "hits.m8"
    table.write_text("trypsin\t4zhl_U\ntrypsin\t9xyz_A\nother\t1a7g_E\n")
    stage = TemplateStage.open(options(pdb_hit_file=table, local_pdb_path=structures), tmp_path)
    found = stage.find("trypsin", features)
    assert [each.id for each in found.hits.templates] == ["4zhl_U"]
    stream = io.StringIO()
    found.write_table(stream)
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
    with pytest.raises(click.UsageError, match=message):
        options(**values)


def test_no_templates() -> None:
    assert TemplateOptions.from_options(NONE | {"no_templates": True}, threads=1) is None
