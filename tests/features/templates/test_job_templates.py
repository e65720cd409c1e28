"""Templates of a job: their features, hidden sequences, and those that are not used."""

import gzip
from pathlib import Path

import gemmi
import numpy as np
import pytest

from features.assembly.job import JobTemplate
from features.chemistry.residues import CB, encode_query
from features.templates.job_templates import job_template_hits
from features.templates.library.structure_files import read_chains
from features.templates.search import hit_features
from features.templates.table import _rows
from foldcli.outputs.templates import used_templates
from msa.base.errors import InputError
from msa.base.residues import GAP

FILE = Path(__file__).parent / "data" / "1a8o.cif.gz"
TEXT = gzip.decompress(FILE.read_bytes()).decode()
CHAIN = read_chains(FILE)[0]
QUERY = CHAIN.sequence[5:35]


def template(query: tuple[int, ...], text: str = TEXT, offset: int = 5) -> JobTemplate:
    return JobTemplate(text, query, tuple(i + offset for i in query), path="jobs/j.json", line=4)


def test_listed_residues_are_those_of_the_structure_and_all_others_are_empty() -> None:
    listed = (3, 2, 10, 29)
    hits, unusable = job_template_hits(QUERY, [template(listed)], "A", 4)
    features = hit_features(hits)
    rows = sorted(listed)
    others = np.setdiff1d(np.arange(30), rows)
    columns = np.array(rows) + 5
    assert not unusable
    np.testing.assert_array_equal(features["template_aatype"][0, rows], encode_query(QUERY)[rows])
    np.testing.assert_array_equal(features["template_all_atom_positions"][0, rows], CHAIN.positions[columns])
    np.testing.assert_array_equal(features["template_all_atom_masks"][0, rows], CHAIN.mask[columns])
    assert (features["template_aatype"][0, others] == GAP).all()
    assert not features["template_all_atom_masks"][0, others].any()
    (candidate,) = hits.templates
    assert (candidate.id, candidate.source, candidate.evalue) == ("1_A", "j.json:4", None)
    assert (candidate.identity, candidate.query_start, candidate.template_end) == (1.0, 3, 35)
    ((_, used, _, _, evalue, *_),) = _rows(hits, ())
    assert (used, evalue) == ("1", "-")


def test_pairs_in_any_order_are_no_alignment() -> None:
    """ModelCIF's alignments cannot show them; of two positions for one residue, the last counts."""
    swapped = JobTemplate(TEXT, (2, 3, 2), (9, 7, 8))
    hits, _ = job_template_hits(QUERY, [swapped, template((2, 3))], "A", 4)
    assert hits.templates[0].pairs.tolist() == [[2, 8], [3, 7]]
    first, second = used_templates("A", hits)
    assert first.sequences is None and first.template_chain == "A" and first.entry is None
    assert second.aligned_rows() == (QUERY[2:4], QUERY[2:4])


def test_backbone_of_unknown_residues_hides_sequence_and_side_chains() -> None:
    """Their CB is placed, because the network sees distances of CB only."""
    structure = gemmi.read_structure(str(FILE))
    for residue in structure[0][0].get_polymer():
        residue.name = "UNK"
        for name, location in [(atom.name, atom.altloc) for atom in residue]:
            if name not in ("N", "CA", "C", "O"):
                residue.remove_atom(name, location)
    structure.entities[0].full_sequence = ["UNK"] * len(CHAIN.sequence)
    hidden = structure.make_mmcif_document().as_string()
    hits, _ = job_template_hits(QUERY, [template((0, 1, 2), hidden)], "A", 4)
    features = hit_features(hits)
    assert features["template_aatype"][0, :3].tolist() == [20, 20, 20]
    assert features["template_all_atom_masks"][0, :3].sum(-1).tolist() == [5, 5, 5]
    placed = features["template_pseudo_beta"][0, :3]
    known = CHAIN.mask[5:8, CB]
    assert known.any() and features["template_pseudo_beta_mask"][0, :3].all()
    assert np.abs(placed - CHAIN.positions[5:8, CB])[known].max() < 0.2


def test_templates_that_are_not_used_are_named() -> None:
    absent = int(np.flatnonzero(~CHAIN.mask.any(1))[0]) if not CHAIN.mask.any(1).all() else None
    empty = template(()) if absent is None else template((0,), offset=absent)
    hits, unusable = job_template_hits(QUERY, [empty, *[template((1, 2))] * 3], "A", 2)
    assert [candidate.id for candidate in hits.templates] == ["2_A", "3_A"]
    assert unusable == (
        ("1_A", "no listed residue has coordinates"),
        ("4_A", "the network takes 2 templates of a chain"),
    )
    assert job_template_hits(QUERY, [], "A", 4)[0].templates == []


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (template((0,), offset=70), "a position of its chain is beyond the last residue, 69"),
        (template((0,), "nonsense"), "neither an mmCIF nor a PDB file"),
    ],
)
def test_damaged_template_is_reported_with_its_place(own: JobTemplate, reason: str) -> None:
    with pytest.raises(InputError, match=rf"jobs/j\.json:4: template 2 of chain B: .*{reason}"):
        job_template_hits(QUERY, [template((0,)), own], "B", 4)
