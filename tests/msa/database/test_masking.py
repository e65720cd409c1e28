"""Masking equals a simple float64 implementation of the model, and tantan."""

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msa import alphabet
from msa.database import masking
from msa.database.masking import MaskSettings, likelihood_ratios, mask, matrix_lambda
from msa.io.fasta import read_fasta
from msa.profile.matrices import substitution_matrix


def repeat_probabilities(codes: np.ndarray, model: MaskSettings | None = None) -> np.ndarray:
    """Return each residue's probability of being in a repeat, float32 [length]."""
    probabilities = np.empty(len(codes), np.float32)
    arguments, workspace = masking._arguments(model or MaskSettings()), masking._workspace(len(codes))
    masking._probabilities(codes, *arguments, *workspace, probabilities)
    return probabilities


def reference_probabilities(codes: np.ndarray, model: MaskSettings) -> np.ndarray:
    """Run forward-backward in float64; state 0 is the background, state k a repeat of period k."""
    scores = substitution_matrix().astype(float) * matrix_lambda()
    states, length = model.periods + 1, len(codes)
    weights = [model.decay**k for k in range(model.periods)]
    transitions = np.zeros((states, states))
    transitions[0, 0] = 1 - model.start
    transitions[0, 1:] = [model.start * weight / sum(weights) for weight in weights]
    transitions[1:, 0] = model.end
    transitions[range(1, states), range(1, states)] = 1 - model.end
    emissions = np.zeros((length, states))
    emissions[:, 0] = 1
    for i in range(length):
        for k in range(1, min(i, model.periods) + 1):
            emissions[i, k] = math.exp(scores[codes[i], codes[i - k]])
    forward, backward = np.zeros((length, states)), np.zeros((length, states))
    state = np.eye(states)[0]
    for i in range(length):
        state = state @ transitions * emissions[i]
        state /= state.sum()
        forward[i] = state
    state = transitions[:, 0]
    for i in reversed(range(length)):
        backward[i] = state / state.sum()
        state = transitions @ (emissions[i] * backward[i])
    joint = forward * backward
    return 1 - joint[:, 0] / joint.sum(axis=1)


def check_probabilities(codes: np.ndarray, model: MaskSettings) -> None:
    found = repeat_probabilities(codes, model)
    np.testing.assert_allclose(found, reference_probabilities(codes, model), atol=3e-5)


@settings(deadline=None, max_examples=40)
@given(
    unit=st.text(alphabet.LETTERS, min_size=1, max_size=60),
    copies=st.integers(1, 8),
    before=st.text(alphabet.LETTERS, max_size=40),
    after=st.text(alphabet.LETTERS, max_size=40),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(alphabet.LETTERS)), max_size=20),
    periods=st.sampled_from([1, 2, 50, 63, 64]),
)
@example(unit="WCHPWY", copies=100, before="M", after="", changes=[], periods=50)
@example(unit="W", copies=1025, before="", after="", changes=[], periods=50)
@example(unit="MKV", copies=1, before="", after="", changes=[], periods=50)
@example(unit="M", copies=1, before="", after="", changes=[], periods=50)
def test_probabilities_equal_the_reference(
    unit: str, copies: int, before: str, after: str, changes: list[tuple[int, str]], periods: int
) -> None:
    codes = alphabet.encode(before + unit * copies + after)
    for position, letter in changes:
        codes[position % len(codes)] = alphabet.LETTERS.index(letter)
    check_probabilities(codes, MaskSettings(periods=periods))


@pytest.mark.parametrize(
    "model",
    [
        MaskSettings(),
        MaskSettings(start=0.02, end=0.1, periods=20, decay=0.8),
        MaskSettings(start=0.001, end=0.01, periods=64, decay=1.0),
    ],
)
def test_probabilities_equal_the_reference_across_chunks(model: MaskSettings) -> None:
    random = np.random.default_rng(1)
    for length in (511, 512, 513, 1600):
        codes = random.integers(0, 20, length).astype(np.uint8)
        for start in range(0, length - 120, 150):  # repeats of all periods, some across the edges of chunks
            period = int(random.integers(1, 70))
            codes[start + period : start + 120] = codes[start : start + 120 - period]
        check_probabilities(codes, model)


def test_long_repeats_neither_overflow_nor_underflow() -> None:
    titin = alphabet.encode("WCYHPFWMCW" * 4000)
    found = repeat_probabilities(titin)
    assert found[:10].max() < 0.5
    assert (found[20:-20] > 0.99).all()
    # longer than the longest period of the model, so not detected as a repeat
    random = np.random.default_rng(5)
    unit = random.permutation(np.repeat(np.arange(20, dtype=np.uint8), 3))
    longer = repeat_probabilities(np.tile(unit, 700))
    assert np.isfinite(longer).all()
    np.testing.assert_allclose(
        longer[:600], reference_probabilities(np.tile(unit, 10), MaskSettings()), atol=0.02
    )


def test_likelihood_ratios_correspond_to_frequencies() -> None:
    assert matrix_lambda() == pytest.approx(0.3240, abs=5e-5)
    ratios = likelihood_ratios()
    assert (ratios == ratios.T).all()
    standard = ratios[:20, :20].astype(float)
    frequencies = np.linalg.solve(standard, np.ones(20))
    assert frequencies.sum() == pytest.approx(1, abs=1e-5)
    assert (frequencies > 0).all()
    assert ratios[31].max() == 0


def test_mask_sets_the_bit_where_the_probability_is_at_least_the_threshold() -> None:
    random = np.random.default_rng(2)
    sequences = [random.choice(6, size).astype(np.uint8) for size in (1, 7, 300, 4, 900, 64)]
    for threshold in (0.3, 0.5, 0.9):
        model = MaskSettings(threshold=threshold)
        residues = np.concatenate(sequences)
        masked = mask(residues, np.array([len(s) for s in sequences], np.int32), model)
        expected = np.concatenate([repeat_probabilities(s, model) for s in sequences]) >= threshold
        assert 0 < expected.sum() < len(expected)
        assert masked == expected.sum()
        assert ((residues & alphabet.MASK_BIT != 0) == expected).all()
        assert (residues & alphabet.LETTER_BITS == np.concatenate(sequences)).all()


def test_probabilities_ignore_existing_masks() -> None:
    codes = alphabet.encode("MKVLAAGIVGL" * 3)
    assert (repeat_probabilities(codes | alphabet.MASK_BIT) == repeat_probabilities(codes)).all()


def test_empty_input_is_accepted() -> None:
    assert mask(np.empty(0, np.uint8), np.empty(0, np.int32)) == 0
    assert len(repeat_probabilities(np.empty(0, np.uint8))) == 0


def test_more_periods_than_lanes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        MaskSettings(periods=65)


needs_tantan = pytest.mark.skipif(shutil.which("tantan") is None, reason="tantan is not installed")


def tantan(path: Path, *options: str) -> list[list[str]]:
    """Return the lines of each record printed by `tantan -p OPTIONS`."""
    text = subprocess.run(["tantan", "-p", *options, path], capture_output=True, text=True, check=True).stdout
    return [record.splitlines()[1:] for record in text.split(">")[1:]]


def copy_standard_records(path: Path, folder: Path, max_records: int) -> tuple[Path, list[str]]:
    """Copy the first records that have only standard residues, which tantan scores by BLOSUM62."""
    sequences = []
    for record in read_fasta(path):
        if not set(record.sequence) - set(alphabet.STANDARD) and len(sequences) < max_records:
            sequences.append(record.sequence)
    copy = folder / "standard.fasta"
    copy.write_text("".join(f">{number}\n{sequence}\n" for number, sequence in enumerate(sequences)))
    return copy, sequences


@needs_tantan
def test_probabilities_equal_those_of_tantan(root: Path, tmp_path: Path) -> None:
    path, sequences = copy_standard_records(root / "examples" / "demo.fasta", tmp_path, 1000)
    with path.open("a") as stream:  # the proteins of the demo have hardly any repeats
        for extra in (
            "MKV" * 30,
            "GSGSGSGSGAPAPAP" * 20 + sequences[0],
            "Q" * 200,
            "MTEYKLVVVGAGGVGKSALT" * 9,
        ):
            sequences.append(extra)
            stream.write(f">extra\n{extra}\n")
    for sequence, printed in zip(sequences, tantan(path, "-f1"), strict=True):
        expected = np.array(printed, float)  # three significant digits
        result = repeat_probabilities(alphabet.encode(sequence))
        np.testing.assert_allclose(result, expected, atol=2e-5, rtol=5.1e-3)


@needs_tantan
def test_masked_residues_equal_those_of_tantan(shared_dir: Path, tmp_path: Path) -> None:
    path, sequences = copy_standard_records(shared_dir / "data" / "realseq.fasta.gz", tmp_path, 2000)
    result = alphabet.encode("".join(sequences))
    mask(result, np.array([len(sequence) for sequence in sequences], np.int32))
    expected = np.array([letter.islower() for lines in tantan(path) for line in lines for letter in line])
    assert expected.mean() > 0.02
    # rounding may decide for residues very close to the threshold
    assert np.count_nonzero((result & alphabet.MASK_BIT != 0) != expected) <= len(expected) // 10**6 + 1
