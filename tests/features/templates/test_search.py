"""Template search: profiles, AlphaFold2's rules for hits, and the table of candidates."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.chemistry.residues import CA
from features.templates.homology import copy_template
from features.templates.library.build import write_library
from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.settings import LibrarySettings, TemplateSettings
from features.templates.search import (
    alignment_query,
    hit_features,
    search_templates,
    search_templates_many,
)
from features.templates.table import COLUMNS, write_template_table
from msa.alignments.files import Alignment
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord

ALL = TemplateSettings(evalue=1.0)


@pytest.fixture(scope="module")
def trypsin(library: StructureLibrary) -> FastaRecord:
    """Return the query that finds itself (1gbt_A) and a relative (4zhl_U)."""
    index = library.find("1gbt_A")
    assert index is not None
    return FastaRecord("trypsin", library.chain(index).sequence)


def test_relatives_are_found_with_their_alignment(library: StructureLibrary, trypsin: FastaRecord) -> None:
    hits = search_templates(trypsin, library, ALL)
    assert [each.id for each in hits.templates[:2]] == ["1gbt_A", "4zhl_U"]
    itself, relative = hits.templates[:2]
    assert itself.identity == 1
    assert itself.query_coverage == 1
    np.testing.assert_array_equal(itself.pairs[:, 0], itself.pairs[:, 1])
    assert 0.95 * 223 < (itself.expected_pairs or 0) <= 223
    assert 0.25 < relative.identity < 0.6
    # the aligned disulfide and catalytic residues are those of the serine proteases
    chain = library.chain(relative.index)
    aligned = dict(relative.pairs.tolist())
    motif = trypsin.sequence.index("GDSGGP")
    assert chain.sequence[aligned[motif] : aligned[motif] + 6] == "GDSGGP"


def test_features_of_the_templates_have_the_chains_coordinates(
    library: StructureLibrary, trypsin: FastaRecord
) -> None:
    hits = search_templates(trypsin, library, replace(ALL, max_templates=1))
    features = hit_features(hits)
    chain = library.chain(hits.templates[0].index)
    assert features["template_aatype"].shape == (1, 223)
    np.testing.assert_array_equal(features["template_all_atom_positions"][0], chain.positions)
    assert features["template_sum_probs"][0, 0] == pytest.approx(hits.templates[0].expected_pairs)


def test_exclude_self_rejects_only_the_query_itself(library: StructureLibrary, trypsin: FastaRecord) -> None:
    hits = search_templates(trypsin, library, replace(ALL, exclude_self=True))
    assert "1gbt_A" not in [each.id for each in hits.templates]
    assert "4zhl_U" in [each.id for each in hits.templates]
    (rejected,) = [each for each in hits.candidates if each.id == "1gbt_A"]
    assert rejected.rejection == "the query itself, or a large part of it"


def test_date_cut_off(library: StructureLibrary, trypsin: FastaRecord) -> None:
    def reason(date: str, name: str) -> str | None:
        hits = search_templates(trypsin, library, replace(ALL, max_template_date=date))
        (candidate,) = [each for each in hits.candidates if each.id == name]
        return candidate.rejection

    assert reason("1994-01-31", "1gbt_A") is None
    assert reason("1994-01-30", "1gbt_A") == "released 1994-01-31, after 1994-01-30"
    unknown = reason("2024-01-01", "4zhl_U")
    assert unknown is not None
    assert unknown.startswith("release date unknown")
    with pytest.raises(InputError, match="expected a date such as"):
        TemplateSettings(max_template_date="yesterday")


def test_only_the_best_hits_are_used(library: StructureLibrary, trypsin: FastaRecord) -> None:
    hits = search_templates(trypsin, library, replace(ALL, max_templates=1))
    assert [each.id for each in hits.templates] == ["1gbt_A"]
    assert hits.candidates[1].rejection == "not among the best 1 by expected correct pairs"
    hits = search_templates(trypsin, library, replace(ALL, max_hits=1))
    assert hits.candidates[1].rejection == "not among the best 1 hits by E-value"


def test_short_alignments_are_rejected(library: StructureLibrary, trypsin: FastaRecord) -> None:
    hits = search_templates(trypsin, library, replace(ALL, min_aligned_residues=300))
    assert not hits.templates
    assert hits.candidates[0].rejection == "223 aligned residues, fewer than 300"
    long_query = FastaRecord("long", trypsin.sequence[:60] + "G" * 700)
    hits = search_templates(long_query, library, ALL)
    assert not hits.templates
    assert "of the query, which is too little" in (hits.candidates[0].rejection or "")


def test_broken_chains_and_chains_without_atoms_are_rejected(
    library: StructureLibrary, trypsin: FastaRecord, tmp_path: Path
) -> None:
    index = library.find("1gbt_A")
    assert index is not None
    chain = library.chain(index)
    broken = chain.positions.copy()
    broken[100:] += 100  # Å along each axis
    mask = np.zeros_like(chain.mask)
    mask[-1, CA] = True
    chains = [replace(chain, id="broken_A", positions=broken), replace(chain, id="empty_A", mask=mask)]
    write_library(chains, tmp_path / "lib", LibrarySettings())
    hits = search_templates(trypsin, StructureLibrary.open(tmp_path / "lib"), ALL)
    assert {each.id: each.rejection for each in hits.candidates} == {
        "broken_A": "broken chain: neighbouring CA atoms more than 150 Å apart",
        "empty_A": "no coordinates of aligned residues",
    }


def test_profile_of_an_alignment_finds_more_than_its_query(library: StructureLibrary) -> None:
    first, second = (library.find(name) for name in ("1gbt_A", "4zhl_U"))
    assert first is not None
    assert second is not None
    trypsin, protease = library.chain(first), library.chain(second)
    pairs = search_templates(FastaRecord("q", trypsin.sequence), library, ALL).templates[1].pairs
    row = np.full(len(trypsin.sequence), ord("-"), np.uint8)
    row[pairs[:, 0]] = np.frombuffer(protease.sequence.encode(), np.uint8)[pairs[:, 1]]
    letters = np.stack([np.frombuffer(trypsin.sequence.encode(), np.uint8), row])
    query = alignment_query(Alignment(("q", "r"), letters, np.zeros(letters.shape, np.uint8)))
    assert query.of_family
    with_profile = search_templates(query, library, ALL)
    (relative,) = [each for each in with_profile.candidates if each.id == "4zhl_U"]
    alone = search_templates(FastaRecord("q", trypsin.sequence), library, ALL).templates[1]
    assert relative.evalue < alone.evalue * 1e-10
    single = Alignment(("q",), letters[:1], np.zeros((1, letters.shape[1]), np.uint8))
    assert not alignment_query(single).of_family


def test_many_queries_give_the_same_as_one(library: StructureLibrary) -> None:
    queries = [FastaRecord(chain.id, chain.sequence) for chain in map(library.chain, range(len(library)))]
    results = list(search_templates_many(queries, library, replace(ALL, threads=3)))
    assert [query for query, _ in results] == queries
    for query, hits in results:
        single = search_templates(query, library, ALL)
        assert [(each.id, each.expected_pairs) for each in hits.candidates] == [
            (each.id, each.expected_pairs) for each in single.candidates
        ]


def test_unrelated_query_has_no_templates(library: StructureLibrary) -> None:
    hits = search_templates(FastaRecord("q", "MKWP" * 12), library)
    assert not hits.candidates
    assert hit_features(hits)["template_aatype"].shape == (0, 48)


def test_table_lists_every_candidate(library: StructureLibrary, trypsin: FastaRecord) -> None:
    hits = search_templates(trypsin, library, replace(ALL, max_templates=1))
    stream = io.StringIO()
    write_template_table(stream, hits, [("9xyz_A", "no structure file")])
    header, *rows = (line.split("\t") for line in stream.getvalue().splitlines())
    assert tuple(header) == COLUMNS
    assert all(len(row) == len(COLUMNS) for row in rows)
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert (table[0]["template"], table[0]["used"], table[0]["identity"]) == ("1gbt_A", "1", "1.000")
    assert table[0]["release_date"] == "1994-01-31"
    assert (table[1]["template"], table[1]["used"]) == ("4zhl_U", "no")
    assert table[-1]["reason"] == "no structure file"


def test_few_templates_can_be_chosen_by_the_accuracy_of_their_copies() -> None:
    library = StructureLibrary.open(EMBEDDED)
    ubiquitin = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
    query, every = FastaRecord("ubiquitin", ubiquitin), TemplateSettings(max_templates=20)
    candidates = search_templates(query, library, every)
    accuracies = {
        template.id: float(copy_template(ubiquitin, template, chain).expected_lddt.sum())
        for template, chain in zip(candidates.templates, candidates.chains, strict=True)
    }
    hits = search_templates(query, library, replace(every, max_templates=2, by_copy_accuracy=True))
    by_accuracy = sorted(accuracies, key=lambda name: -accuracies[name])
    assert [each.id for each in candidates.templates] != by_accuracy
    assert [each.id for each in hits.templates] == by_accuracy[:2]
    (rejected,) = {each.rejection for each in hits.candidates if each.id in accuracies} - {None}
    assert rejected == "not among the best 2 by the expected accuracy of copies"
