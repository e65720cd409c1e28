"""Statements of results about a network with a manifest."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.templates.candidates import TemplateCandidate
from foldcli.outputs.network_note import network_facts
from model.network_folder import HeldOutCase, NetworkManifest
from tests.networks import tiny_network, write_packaged_network

TEMPLATE = TemplateCandidate(
    index=0, id="1abc_A", source="", release_date=None, evalue=1e-9, identity=0.7, query_start=1, query_end=9,
    template_start=1, template_end=9, pairs=np.zeros((9, 2), np.int64), query_coverage=0.9,
)  # fmt: skip
CASE = HeldOutCase(False, 0.0, None, 150, 0.41, 0.39, 0.42, 0.24, 0.06)


@pytest.fixture
def manifest(tmp_path: Path) -> NetworkManifest:
    """Return the manifest of a small network."""
    return replace(write_packaged_network(tmp_path / "network", tiny_network()), held_out=(CASE,))


def note(manifest: NetworkManifest, *templates: TemplateCandidate) -> str:
    return str(network_facts(manifest, templates, 5.0)["note"])


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
    assert "Expected lDDT-CA 70, the mean of 150 held-out chains with best template of at least 40 %" in text
    message = "For such inputs, a copy of the best template is more accurate: 80 (--params template)."
    assert (message in text) == recommended
