"""Tests of the scores of complexes against DeepMind's functions and against slow loops in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cuda.fused.chunking import chunk_budget
from model.alphafold2.modules.heads import (
    DistogramHead,
    aligned_error_edges,
    distogram_edges,
    expected_errors,
)
from model.chains import chain_names, chain_slices
from model.confidence.complex_scores import complex_scores
from model.confidence.pair_scores import MAX_CONTACTS
from model.prediction import ComplexScores, complex_confidence
from msa.base.residues import ATOM_ORDER

CENTERS = np.arange(64) * 0.5 + 0.25
LENGTHS = (7, 30, 1, 12)


def tm_term(error: np.ndarray | float, length: float, shortest: float = 19.0) -> np.ndarray:
    d0 = 1.24 * (max(length, shortest) - 15) ** (1 / 3) - 1.8
    return 1 / (1 + np.square(error / (max(d0, 1.0) if shortest == 26.0 else d0)))


class Example:
    """A random complex of four chains, packed so that many residues touch, with confident contacts."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        length = sum(LENGTHS)
        self.asym_id = np.repeat(np.arange(1, len(LENGTHS) + 1), LENGTHS)
        self.pae_logits = rng.normal(size=(length, length, 64)) * 3
        half = rng.normal(size=(length, length, 64)) * 3
        # chains 1 and 2 have contacts, chain 4 has none
        for i, j in ((0, 9), (1, 9), (2, 20), (37, 8)):
            half[i, j, 4] += 40
        half[38:, :, :20] -= 40
        self.distogram_logits = half + half.transpose(1, 0, 2)
        self.positions = rng.uniform(0, 22, (length, 37, 3))
        self.mask = np.ones((length, 37))
        self.mask[::3, ATOM_ORDER["CB"]] = 0
        self.mask[5] = 0
        self.plddt = rng.uniform(30, 100, length)

    def scores(self) -> ComplexScores:
        pae, distogram, positions, mask = (
            torch.from_numpy(x) for x in (self.pae_logits, self.distogram_logits, self.positions, self.mask)
        )
        scores, errors = complex_scores(
            pae, aligned_error_edges(), distogram, distogram_edges(), self.asym_id, positions, mask,
            self.plddt,
        )  # fmt: skip
        expected = expected_errors(pae, torch.nn.Identity())
        assert np.allclose(errors.numpy(), expected.pae.numpy(), rtol=1e-6) and errors.dtype == torch.float32
        assert scores.ptm == pytest.approx(float(expected.tm_score.max()), rel=1e-7)
        return scores


@pytest.fixture(scope="module")
def example() -> Example:
    return Example()


@pytest.fixture(scope="module")
def ours(example: Example) -> ComplexScores:
    return example.scores()


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def weighted_tm(terms: np.ndarray, weights: np.ndarray) -> float:
    """Return the maximum over rows of the weighted mean of TM-score terms, 0 for rows without weight."""
    best = 0.0
    for row, weight in zip(terms, weights, strict=True):
        if weight.sum():
            best = max(best, float((row * weight).sum() / weight.sum()))
    return best


def pairs(count: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(count) for b in range(count) if a != b]


def test_tm_scores_of_whole_chains_and_pairs(example: Example, ours: ComplexScores) -> None:
    probabilities = softmax(example.pae_logits)
    chain = example.asym_id - 1
    length = len(chain)
    terms = probabilities @ tm_term(CENTERS, length)
    different = chain[:, None] != chain
    assert ours.ptm == pytest.approx(weighted_tm(terms, np.ones((length, length))))
    assert ours.iptm == pytest.approx(weighted_tm(terms, different))
    for a, size in enumerate(LENGTHS):
        inside = chain == a
        own = (probabilities @ tm_term(CENTERS, size))[np.ix_(inside, inside)]
        assert ours.per_chain_ptm[a] == pytest.approx(weighted_tm(own, np.ones((size, size))))
        assert np.isnan(ours.pairwise_iptm[a, a])
    for a, b in pairs(len(LENGTHS)):
        both = (chain == a) | (chain == b)
        weights = different & both & both[:, None]
        assert ours.pairwise_iptm[a, b] == pytest.approx(weighted_tm(terms, weights))


def test_actifptm_counts_residues_with_confident_contacts(example: Example, ours: ComplexScores) -> None:
    lower = np.append(0, np.linspace(2.3125, 21.6875, 63))
    contact = softmax(example.distogram_logits)[..., lower < 8].sum(-1) >= 0.6
    chain = example.asym_id - 1
    terms = softmax(example.pae_logits) @ tm_term(CENTERS, len(chain))
    everything = np.zeros_like(terms)
    for a, b in pairs(len(LENGTHS)):
        in_contact = np.zeros(len(chain))
        for i, j in np.argwhere(contact):
            if {chain[i], chain[j]} == {a, b}:
                in_contact[[i, j]] = 1
        weights = np.outer(in_contact, in_contact) * (chain[:, None] != chain)
        everything += weights / 2  # each pair of chains is visited twice
        expected = weighted_tm(terms, weights)
        assert ours.pairwise_actifptm[a, b] == pytest.approx(expected)
    assert ours.pairwise_actifptm[0, 1] > 0 and ours.pairwise_actifptm[0, 3] == 0
    assert ours.actifptm == pytest.approx(weighted_tm(terms, everything))


def test_ipsae_and_contact_scores(example: Example, ours: ComplexScores) -> None:
    chain = example.asym_id - 1
    pae = softmax(example.pae_logits) @ CENTERS
    cb = np.where(example.mask[:, 3, None] > 0, example.positions[:, 3], example.positions[:, 1])
    distance = np.linalg.norm(cb[:, None] - cb, axis=-1)
    distance[5] = distance[:, 5] = np.inf
    found = []
    for a, b in pairs(len(LENGTHS)):
        best = 0.0
        terms, touching = [], set()
        for i in np.flatnonzero(chain == a):
            near = [pae[i, j] for j in np.flatnonzero(chain == b) if pae[i, j] < 15]
            if near:
                best = max(best, float(np.mean([tm_term(error, len(near), 26.0) for error in near])))
            for j in np.flatnonzero(chain == b):
                if distance[i, j] <= 8:
                    terms.append(1 / (1 + (pae[i, j] / 10) ** 2))
                    touching |= {i, j}
                    if a < b:
                        found.append((i, j))
        assert ours.ipsae[a, b] == pytest.approx(best)
        if not terms:
            assert ours.pdockq[a, b] == ours.pdockq2[a, b] == 0
            continue
        plddt = example.plddt[sorted(touching)].mean()
        x = plddt * np.log10(len(terms))
        assert ours.pdockq[a, b] == pytest.approx(0.724 / (1 + np.exp(-0.052 * (x - 152.611))) + 0.018)
        x = plddt * np.mean(terms)
        assert ours.pdockq2[a, b] == pytest.approx(1.31 / (1 + np.exp(-0.075 * (x - 84.733))) + 0.005)
    contacts = ours.contacts
    assert list(zip(contacts.first, contacts.second, strict=True)) == sorted(found)
    assert contacts.total == len(found) > 20
    assert np.allclose(contacts.distance, distance[contacts.first, contacts.second])
    both = [pae[contacts.first, contacts.second], pae[contacts.second, contacts.first]]
    assert np.allclose(contacts.pae, np.stack(both, 1), atol=1e-5)


def test_lis_ilis_smallest_pae_and_pdockq2_of_chains(example: Example, ours: ComplexScores) -> None:
    # loops over pairs as in `lis.py` of Kim et al. and the script `pDockQ2.py` of Zhu et al.
    chain = example.asym_id - 1
    pae = softmax(example.pae_logits) @ CENTERS
    ca, cb = example.positions[:, 1].copy(), example.positions[:, 1].copy()
    has_cb = example.mask[:, 3] > 0
    cb[has_cb] = example.positions[has_cb, 3]
    ca[5] = cb[5] = np.nan
    with_contact = set()
    for a, b in pairs(len(LENGTHS)):
        means: dict[str, list[float]] = {"lis": [], "clis": []}
        for first, second in ((a, b), (b, a)):
            terms: dict[str, list[float]] = {"lis": [], "clis": []}
            for i in np.flatnonzero(chain == first):
                for j in np.flatnonzero(chain == second):
                    if pae[i, j] < 12:
                        terms["lis"].append(1 - pae[i, j] / 12)
                        if np.linalg.norm(cb[i] - cb[j]) < 8:
                            terms["clis"].append(1 - pae[i, j] / 12)
            for name, values in terms.items():
                means[name].append(float(np.mean(values)) if values else 0.0)
        lis, clis = (sum(values) / 2 for values in means.values())
        assert ours.lis[a, b] == pytest.approx(lis)
        assert ours.ilis[a, b] == pytest.approx(np.sqrt(lis * clis))
        with_contact |= {(a, b)} if clis else set()
        assert ours.pae_min[a, b] == pytest.approx(pae[np.ix_(chain == a, chain == b)].min(), rel=1e-6)
    assert len(with_contact) > 4
    for a in range(len(LENGTHS)):
        values = [
            (example.plddt[i], 1 / (1 + (pae[i, j] / 10) ** 2))
            for i in np.flatnonzero(chain == a)
            for j in np.flatnonzero(chain != a)
            if np.linalg.norm(ca[i] - ca[j]) <= 8
        ]
        x = np.prod(np.mean(values, axis=0)) if values else 0.0
        expected = 1.31034849 / (1 + np.exp(-7.47157696e-02 * (x - 8.47326239e01))) + 5.01886443e-03
        assert ours.per_chain_pdockq2[a] == pytest.approx(expected)
    assert ours.best()["ilis"] == round(np.nanmax(ours.ilis), 4)


def test_chunks_do_not_change_the_result(example: Example, ours: ComplexScores) -> None:
    with chunk_budget(1):
        chunked = example.scores()
    for name in ("per_chain_ptm", "pairwise_iptm", "pairwise_actifptm", "ipsae", "pdockq", "pdockq2", "ilis"):
        assert np.allclose(getattr(chunked, name), getattr(ours, name), rtol=1e-12, equal_nan=True), name
    assert chunked.iptm == pytest.approx(ours.iptm, rel=1e-12)
    assert (chunked.contacts.first == ours.contacts.first).all()


def test_only_the_closest_contacts_are_kept(
    example: Example, ours: ComplexScores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.confidence.pair_scores.MAX_CONTACTS", 10)
    assert MAX_CONTACTS > 10
    with chunk_budget(1):
        few = example.scores().contacts
    kept = np.sort(np.argsort(ours.contacts.distance)[:10])
    assert (few.distance == ours.contacts.distance[kept]).all()
    assert (few.first == ours.contacts.first[kept]).all()
    assert few.total == ours.contacts.total


@pytest.mark.parametrize(
    "name",
    ["heterodimer/iter0", "heterodimer_templates/iter0", "heterodimer_templates/iter1",
     "one_and_two_copies_templates/iter0"],
)  # fmt: skip
def test_scores_match_deepmind(name: str, shared_dir: Path) -> None:
    folder = shared_dir / "parity" / "multimer"
    with (
        np.load(folder / f"{name}.npz") as archive,
        np.load(folder / name.partition("/")[0] / "features.npz") as features,
    ):
        logits = torch.from_numpy(archive["predicted_aligned_error/logits"])
        scores, _ = complex_scores(
            logits,
            torch.from_numpy(archive["predicted_aligned_error/breaks"]),
            torch.zeros_like(logits),
            distogram_edges(),
            features["asym_id"],
            torch.from_numpy(archive["structure_module/final_atom_positions"]),
            torch.from_numpy(archive["structure_module/final_atom_mask"]),
            archive["confidence/plddt"],
        )
        ours = {"ptm": scores.ptm, "iptm": scores.iptm}
        ours["ranking_confidence"] = complex_confidence(scores.ptm, scores.iptm)
        for key, value in ours.items():
            assert value == pytest.approx(float(archive[f"confidence/{key}"]), rel=1e-6), key


def test_rows_of_the_distogram_equal_the_whole() -> None:
    torch.manual_seed(0)
    head, pair = DistogramHead(6), torch.randn(9, 9, 6)
    for weights in head.parameters():  # parameters are created uninitialized
        weights.normal_()
    assert torch.allclose(head.rows(pair, slice(2, 5)), head(pair)[2:5], atol=1e-6)


def test_names_and_slices_of_chains() -> None:
    names = chain_names(800)
    assert "".join(names[:3] + names[25:27] + names[51:54] + names[60:62]) == "ABCZaz0189"
    assert names[62:65] == ("AA", "AB", "AC") and names[62 + 676 : 62 + 678] == ("AAA", "AAB")
    assert len(set(names)) == 800
    assert chain_slices(np.array([1, 1, 2, 3, 3, 3])) == [slice(0, 2), slice(2, 3), slice(3, 6)]
