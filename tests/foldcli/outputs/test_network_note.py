"""Statements of results about a network with a manifest."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import asdict

from features.templates.candidates import TemplateCandidate
from foldcli.outputs.facts import ExpectedAccuracy, NetworkFacts
from foldcli.outputs.network_note import network_facts, plddt_warning
from model.checkpoints.network_folder import HeldOutCase, NetworkManifest
from tests.networks import tiny_network, write_packaged_network

TEMPLATE = TemplateCandidate(
    index=0, id="1abc_A", source="", release_date=None, evalue=1e-9, identity=0.7, query_start=1, query_end=9,
    template_start=1, template_end=9, pairs=np.zeros((9, 2), np.int64), query_coverage=0.9,
)  # fmt: skip
CASE = HeldOutCase(
    False, 0.0, None, 150, 0.41, 0.39, 0.42, 0.24, 0.06, percentile_10=0.27, percentile_90=0.55
)


@pytest.fixture
def manifest(tmp_path: Path) -> NetworkManifest:
    """Return the manifest of a small network."""
    return replace(write_packaged_network(tmp_path / "network", tiny_network()), held_out=(CASE,))


def facts(
    manifest: NetworkManifest,
    *templates: TemplateCandidate,
    residues: int = 100,
    unmeasured: Sequence[str] = (),
) -> NetworkFacts:
    return network_facts(manifest, templates, residues, 5.0, unmeasured)


def note(manifest: NetworkManifest, *templates: TemplateCandidate) -> str:
    return facts(manifest, *templates).note


def test_irregular_bonds_are_named(manifest: NetworkManifest) -> None:
    text = "Before relaxation (--num-relax), 14 % of the bonds between residues are as in crystal structures."
    assert text in note(replace(manifest, regular_bonds=0.14))
    assert "bonds" not in note(replace(manifest, regular_bonds=0.96))
    assert "bonds" not in note(replace(manifest, regular_bonds=None))


@pytest.mark.parametrize(("baseline", "recommended"), [(0.8, True), (0.6, False)])
def test_copy_is_recommended_where_it_is_more_accurate(
    manifest: NetworkManifest, baseline: float, recommended: bool
) -> None:
    close = replace(CASE, with_template=True, lower=0.4, lddt=0.7, baseline=baseline)
    text = note(replace(manifest, held_out=(CASE, close)), TEMPLATE)
    expected = (
        "Expected lDDT-CA 27 to 55 (10th to 90th percentile of single proteins; mean 70), as of 150 held-out "
        "chains with best template of at least 40 % identity."
    )
    assert expected in text
    message = "For such inputs, a copy of the best template is more accurate: mean 80 (--params template)."
    assert (message in text) == recommended


def test_expected_accuracy_is_a_range_of_single_proteins_from_0_to_100(manifest: NetworkManifest) -> None:
    assert asdict(facts(manifest).expected_lddt) == {
        "inputs": "no template and at least 0 effective sequences", "chains": 150, "lddt": 41.0,
        "percentile_10": 27.0, "percentile_90": 55.0, "baseline": 24.0, "plddt_error": 6.0,
    }  # fmt: skip


def test_nothing_is_claimed_for_unmeasured_inputs(manifest: NetworkManifest) -> None:
    recycles = facts(manifest, unmeasured=["--num-recycle 0", "--no-refine"])
    assert recycles.expected_lddt is None
    message = "The accuracy was not measured with --num-recycle 0 and --no-refine."
    assert recycles.note.endswith(message)
    for residues, measured in ((39, False), (40, True), (512, True), (513, False)):
        found = facts(manifest, residues=residues)
        assert (found.expected_lddt is not None) == measured
    assert found.note.endswith("not measured with 513 residues (but with 40 to 512).")
    # a network whose accuracy was never measured
    assert "accuracy for such inputs was not measured" in note(replace(manifest, held_out=()))


@pytest.mark.parametrize(("evalue", "coverage"), [(1.1e-3, 0.9), (1e-9, 0.69)])
def test_weak_templates_are_inputs_of_their_own(
    manifest: NetworkManifest, evalue: float, coverage: float
) -> None:
    strong = replace(CASE, with_template=True, lddt=0.65)
    weak = replace(strong, weak_template=True, lddt=0.54)
    template = replace(TEMPLATE, id="2xyz_A", evalue=evalue, query_coverage=coverage)
    without, complete = replace(manifest, held_out=(strong,)), replace(manifest, held_out=(strong, weak))
    assert facts(without, template).expected_lddt is None
    assert facts(complete, template).expected_lddt.lddt == 54
    assert facts(complete, template, TEMPLATE).expected_lddt.lddt == 65


@pytest.mark.parametrize(("plddt", "warned"), [(20.9, True), (21.1, False), (60.9, False), (61.1, True)])
def test_contradiction_of_plddt_and_expected_accuracy_is_a_warning(
    manifest: NetworkManifest, plddt: float, warned: bool
) -> None:
    warning = plddt_warning(facts(manifest).expected_lddt, plddt)
    assert (warning is not None) == warned
    assert plddt_warning(None, plddt) is None
    # as older versions wrote it
    assert plddt_warning(ExpectedAccuracy(lddt=0.41, plddt_error=0.06), plddt) is None
