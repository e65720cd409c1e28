"""Models copied from templates: copied atoms, loops, residues that are left out, and expected accuracy."""

from dataclasses import replace

import numpy as np
import pytest

from features.chemistry.residues import CA, CB
from features.templates import homology
from features.templates.homology import MAX_LOOP, copy_best_template, copy_template
from features.templates.library.chains import TemplateChain
from features.templates.library.library import StructureLibrary
from features.templates.library.settings import TemplateSettings
from features.templates.search import search_templates
from msa.base.residues import ATOM37
from msa.io.fasta import FastaRecord

N, C = ATOM37.index("N"), ATOM37.index("C")
SETTINGS = TemplateSettings(evalue=1.0)


@pytest.fixture(scope="module")
def chain(library: StructureLibrary) -> TemplateChain:
    index = library.find("4zhl_U")
    assert index is not None
    return library.chain(index)


def model_of(query: str, library: StructureLibrary, name: str = "4zhl_U"):  # type: ignore[no-untyped-def]
    hits = search_templates(FastaRecord("q", query), library, SETTINGS)
    (candidate,) = [each for each in hits.templates if each.id == name]
    return copy_template(query, candidate, library.chain(candidate.index))


def test_copy_of_the_chain_itself_is_the_chain(library: StructureLibrary, chain: TemplateChain) -> None:
    model = model_of(chain.sequence, library)
    exists = chain.mask.copy()
    exists[:, ATOM37.index("OXT")] = False
    np.testing.assert_array_equal(model.mask & chain.mask, model.mask)
    assert np.count_nonzero(model.mask) == np.count_nonzero(exists)
    np.testing.assert_array_equal(model.positions[model.mask], chain.positions[model.mask])
    assert model.expected_lddt[20:-20].min() > 85
    assert model.origin == "PDB 4ZHL_U, 100 % identity, 100 % of the residues"


def test_substituted_residues_keep_the_backbone_only(library: StructureLibrary, chain: TemplateChain) -> None:
    glycine, tryptophan = chain.sequence.index("G", 50), chain.sequence.index("W", 30)
    letters = list(chain.sequence)
    letters[glycine], letters[tryptophan] = "A", "G"
    model = model_of("".join(letters), library)
    assert model.mask[glycine, CB]
    assert np.linalg.norm(model.positions[glycine, CB] - model.positions[glycine, CA]) == pytest.approx(
        1.53, abs=0.05
    )
    assert np.flatnonzero(model.mask[tryptophan]).tolist() == [0, 1, 2, 4]


def gap_bonds(model) -> np.ndarray:  # type: ignore[no-untyped-def]
    return np.linalg.norm(model.positions[1:, N] - model.positions[:-1, C], axis=1)


@pytest.mark.parametrize("inserted", ["GS", "GSGSA"])
def test_short_insertions_are_closed(library: StructureLibrary, chain: TemplateChain, inserted: str) -> None:
    at = 60
    query = chain.sequence[:at] + inserted + chain.sequence[at:]
    model = model_of(query, library)
    assert model.modelled.all()
    assert gap_bonds(model).max() < 1.6
    assert model.expected_lddt[at] < 60


def test_deletions_are_closed(library: StructureLibrary, chain: TemplateChain) -> None:
    query = chain.sequence[:120] + chain.sequence[122:]
    model = model_of(query, library)
    assert gap_bonds(model).max() < 1.6


def test_long_insertions_and_ends_are_left_out(library: StructureLibrary, chain: TemplateChain) -> None:
    insertion = "GSTNQEKPDA" * 2
    assert len(insertion) > MAX_LOOP
    query = "GGSGGSGGSGGS" + chain.sequence[:120] + insertion + chain.sequence[120:]
    model = model_of(query, library)
    assert not model.modelled[:10].any()
    assert not model.modelled[134:150].any()
    assert not model.mask[~model.modelled].any()
    assert not model.expected_lddt[~model.modelled].any()


def test_missing_residues_lower_the_expected_accuracy(
    library: StructureLibrary, chain: TemplateChain
) -> None:
    whole = model_of(chain.sequence, library)
    half = model_of(chain.sequence[:110] + "GSTNQEKPDA" * 10, library)
    assert not half.modelled[115:].any()
    assert half.expected_lddt[20:100].mean() < whole.expected_lddt[20:100].mean() - 10


def test_lower_identity_lowers_the_expected_accuracy(library: StructureLibrary) -> None:
    index = library.find("1gbt_A")
    assert index is not None
    trypsin = library.chain(index).sequence
    itself, relative = (model_of(trypsin, library, name) for name in ("1gbt_A", "4zhl_U"))
    assert itself.expected_lddt.mean() > relative.expected_lddt.mean() + 10
    hits = search_templates(FastaRecord("q", trypsin), library, SETTINGS)
    best = copy_best_template(hits)
    assert best is not None
    assert best.template.id == "1gbt_A"


def test_residues_without_backbone_are_left_out(library: StructureLibrary, chain: TemplateChain) -> None:
    hits = search_templates(FastaRecord("q", chain.sequence), library, SETTINGS)
    mask = chain.mask.copy()
    mask[100, C] = False
    mask[200:220, CA] = False
    model = copy_template(chain.sequence, hits.templates[0], replace(chain, mask=mask))
    assert not model.modelled[205:215].any()
    # a single residue is built as a loop
    assert model.modelled[100]


def test_without_templates_there_is_no_model(library: StructureLibrary) -> None:
    hits = search_templates(FastaRecord("q", "MKWP" * 12), library)
    assert copy_best_template(hits) is None


@pytest.mark.parametrize(
    ("chain_id", "name"),
    [
        ("1abc_D", "PDB 1ABC_D"),
        ("1FCC_l_b-matched_B", "PDB 1FCC (1FCC_l_b-matched_B in its collection)"),
        ("1e79h_B", "PDB 1E79 (1e79h_B in its collection)"),
        ("my_model_A", "my_model_A"),
    ],
)
def test_entry_of_a_template_is_named(chain_id: str, name: str) -> None:
    assert homology.template_name(chain_id) == name
