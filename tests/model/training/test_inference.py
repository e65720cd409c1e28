"""Tests that predictions give a network the inputs, and compute the outputs, of its training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_iteration
from features.chemistry.residues import atom_maps
from features.templates.library.chains import TemplateChain
from features.templates.template_features import make_template_features
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network
from model.prediction import Prediction
from model.training.alphafold2.features import network_features
from model.training.alphafold2.network import NetworkOutput, initial_recycled_batch, run_network
from model.training.data.data import CENTI, ChainSet, Split
from model.training.data.sampling import Sampler, TrainingSampleSettings
from model.training.runtime.execution import Execution
from msa.alignments.files import Alignment
from msa.base.residues import RESTYPES

LETTERS = np.frombuffer((RESTYPES + "X-").encode(), np.uint8)
PASSES = 3
TOLERANCE = 3e-5


@dataclass(frozen=True)
class SampleDraws:
    """The random choices that a training sample shows, as draws of the features of predictions.

    Args:
        sample: arrays of one training sample, without padding.
        alignment: [rows, length], the alignment of its chain; all rows are different.
    """

    sample: dict[str, np.ndarray]
    alignment: np.ndarray

    def _indices(self, rows: np.ndarray, mask: np.ndarray) -> list[int]:
        """Return the indices of rows of the sample in the alignment."""
        matches = (rows[mask > 0][:, None] == self.alignment[None]).all(axis=2)
        assert (matches.sum(axis=1) == 1).all()
        return np.argmax(matches, axis=1).tolist()

    @property
    def _sampled(self) -> list[int]:
        return self._indices(self.sample["true_msa"], self.sample["row_mask"])

    def sample_order(self, count: int) -> np.ndarray:
        chosen = self._sampled
        assert chosen[0] == 0
        others = [row for row in range(1, count + 1) if row not in chosen]
        return np.array([*chosen[1:], *others], np.int64) - 1

    def mask_positions(self, rows: int, length: int) -> np.ndarray:
        return np.where(self.sample["bert_mask"][:rows, :length] > 0, 0.0, 1.0)

    def replacements(self, probabilities: np.ndarray, masked: np.ndarray) -> np.ndarray:
        codes = self.sample["masked_msa"][: len(masked)][masked]
        # the training sample may only hold codes that predictions may draw, too
        assert (probabilities[np.arange(len(codes)), codes] > 0).all()
        return codes

    def extra_order(self, count: int) -> np.ndarray:
        chosen = self._sampled
        others = [row for row in range(len(self.alignment)) if row not in chosen]
        extra = self._indices(self.sample["extra_msa"], self.sample["extra_row_mask"])
        assert len(extra) == count
        return np.array([others.index(row) for row in extra], np.int64)


def template_rows(
    chains: ChainSet, chain: int, hits: Sequence[int], side_chains: bool
) -> list[tuple[TemplateChain, np.ndarray, float]]:
    """Return hits of a chain as the rows of `make_template_features`."""
    rows = []
    for hit in hits:
        residues = chains.residues(int(chains.hit_target[hit]))
        maps = atom_maps(chains.aatype[residues].astype(np.int32))
        slots = maps["residx_atom37_to_atom14"]
        atom14 = chains.atom14[residues].astype(np.float32) * np.float32(CENTI)
        present = (chains.atom_bits[residues, None] >> np.arange(14)) & 1 > 0
        mask = np.take_along_axis(present, slots, axis=1) & (maps["atom37_atom_exists"] > 0)
        positions = np.take_along_axis(atom14, slots[..., None], axis=1) * mask[..., None]
        letters = LETTERS[chains.aatype[residues]].tobytes().decode()
        template = TemplateChain("template", letters, positions, mask, None, "test")
        rows.append(
            (template if side_chains else template.backbone(), chains.hit_columns(hit).astype(np.int64), 1.0)
        )
    return rows


def predict_sample(
    network: AlphaFold,
    chains: ChainSet,
    chain: int,
    sample: dict[str, np.ndarray],
    settings: SamplingSettings,
) -> Prediction:
    """Predict a training sample with the features and the passes of predictions."""
    alignment = np.asarray(chains.alignment(chain))
    in_alignment = Alignment(
        ("query",) * len(alignment), LETTERS[alignment], np.zeros(alignment.shape, np.uint8)
    )
    hits = chains.hits(chain)[: int(sample["template_mask"].sum())]
    rows = template_rows(chains, chain, [int(hit) for hit in hits], settings.template_side_chains)
    features = make_features([in_alignment], make_template_features(alignment.shape[1], rows))
    length = alignment.shape[1]
    cropped = {name: array[:, :length] if array.ndim == 2 else array for name, array in sample.items()}
    sampled = sample_iteration(
        features,
        SamplingSettings(settings.msa_rows, settings.extra_rows, settings.templates, resample=False),
        SampleDraws(cropped, alignment),
    )
    stacked = {name: np.stack([value] * PASSES) for name, value in sampled.items()}
    return predict(network, stacked, RecyclingSettings(PASSES - 1, extras=frozenset({"all"})))


def train_sample(network: AlphaFold, sample: dict[str, np.ndarray]) -> NetworkOutput:
    """Run the passes of training without dropout on one sample."""
    batch = {name: torch.from_numpy(np.array(array)[None]) for name, array in sample.items()}
    features = network_features(batch, torch.float32)
    execution, dropout = Execution(), torch.zeros(())
    recycled = initial_recycled_batch(network, features, torch.float32)
    for _ in range(PASSES):
        output = run_network(network, features, recycled, dropout, execution)
        recycled = output.recycled
    return output


def changed_chains(chains: ChainSet, rows: int) -> ChainSet:
    """Return the chains with random alignments of `rows` rows, with X and gaps, and with shorter hits."""
    count, length = len(chains.ids), int(chains.lengths[0])
    tokens = np.random.default_rng(3).integers(0, 22, (count, rows, length)).astype(np.uint8)
    tokens[:, 0] = chains.aatype.reshape(count, length)
    # similar rows, so that clusters have members
    tokens[:, 5:, : length // 2] = tokens[:, 1:2, : length // 2]
    steps = np.arange(5, length - 9, dtype=np.int16)
    return replace(
        chains,
        column_offset=np.arange(count + 1) * len(steps),
        columns=np.tile(np.stack([steps, steps + 3], axis=1), (count, 1)),
        row_offset=np.arange(count) * rows * length,
        row_count=np.full(count, rows, np.int32),
        tokens=tokens.reshape(-1),
    )


@pytest.mark.parametrize("crop", [40, 48], ids=["whole chain", "padded chain"])
@pytest.mark.parametrize(
    ("rows", "template_rate", "alignment_drop_rate", "side_chains"),
    [
        (4, 0.0, 0.0, False),
        (4, 1.0, 0.0, False),
        (4, 1.0, 0.0, True),
        (4, 1.0, 1.0, False),
        (30, 1.0, 0.0, False),
        (30, 0.0, 0.0, False),
    ],
    ids=[
        "shallow",
        "template",
        "full template",
        "sequence and template",
        "clusters and template",
        "clusters",
    ],
)
def test_prediction_equals_training(
    chains: ChainSet,
    split: Split,
    network_config: ModelConfig,
    crop: int,
    rows: int,
    template_rate: float,
    alignment_drop_rate: float,
    side_chains: bool,
) -> None:
    chains = changed_chains(chains, rows)
    settings = TrainingSampleSettings(
        msa_rows=12,
        extra_rows=30,
        template_rate=template_rate,
        alignment_drop_rate=alignment_drop_rate,
        shallow_rate=0.0,
        few_clusters_rate=0.0,
        backbone_rate=0.0,
        template_side_chains=side_chains,
    )
    sampler = Sampler(chains, split, settings, seed=7)
    sample = {name: array[0] for name, array in sampler.batch(first=2, size=1, crop=crop).items()}
    chain = int(sample["chain"])
    if alignment_drop_rate:
        chains = changed_chains(chains, 1)
    assert sample["template_mask"].sum() == template_rate
    network = build_network(network_config, random_parameters(network_config, seed=1))
    with torch.no_grad():
        trained = train_sample(network, sample)
    prediction = predict_sample(network, chains, chain, sample, settings)

    results, length = prediction.results, int(chains.lengths[chain])
    pairs = trained.logits["distogram"][0, :length, :length]
    compared = {
        "distogram/logits": pairs,
        "predicted_aligned_error/logits": trained.logits["predicted_aligned_error"][0, :length, :length],
        "predicted_lddt/logits": trained.logits["predicted_lddt"][0, :length],
        "masked_msa/logits": trained.logits["masked_msa"][0, : int(sample["row_mask"].sum()), :length],
        "representations/pair": trained.recycled.pair[0, :length, :length],
    }
    for name, expected in compared.items():
        assert difference(results[name], expected) <= TOLERANCE, name
    alpha = trained.structure.atom14[0, :length, 1]
    assert difference(prediction.atom_positions[:, 1], alpha) <= TOLERANCE


def difference(value: np.ndarray, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest expected value."""
    return float((torch.from_numpy(value) - expected).abs().max() / expected.abs().max())
