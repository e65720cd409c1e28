"""Training samples: a crop of a chain with a sampled, masked alignment and templates, as compact arrays.

A sample is a function of the seed and its index alone, so that training resumes at any index and any number
of worker processes gives the same samples. Arrays stay small integers; `alphafold2.features` turns them
into features on the GPU.
"""

import atexit
import itertools
import signal
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from model.training.data.data import ChainSet, Split
from msa.base.residues import GAP, MASK
from msa.base.services.process import end_with_parent

# bits of N, CA, C, O and CB in `ChainSet.atom_bits`
BACKBONE_BITS = 0b11111
# cumulative probabilities of the replacements of a masked position: the mask code, a residue of its column, a
# uniformly drawn residue; otherwise it is not changed
_TO_MASK, _TO_PROFILE, _TO_UNIFORM = 0.7, 0.8, 0.9
# lengths between which the probability of a chain grows with its length
_WEIGHED_LENGTHS = (64, 384)


@dataclass(frozen=True)
class TrainingSampleSettings:
    """Settings of the samples: rows, templates, and the rates of reduced inputs.

    Args:
        msa_rows: rows of the MSA representation, template rows included.
        extra_rows: rows of the extra MSA.
        templates: template slots.
        masked_fraction: share of alignment positions that are masked.
        template_rate: share of the samples with templates, among those of chains with hits.
        alignment_drop_rate: share of the samples that see the sequence alone.
        shallow_rate: share of the samples that see a random part of the alignment's rows.
        few_clusters_rate: share of the samples in which rows beyond a random number become extra rows.
        backbone_rate: share of the samples taken from chains with a backbone only.
        max_template_identity: hits with a higher identity are not used as templates.
        template_side_chains: whether templates have side chains beyond CB; those of the structure library
            that ships with foldcli do not.
    """

    msa_rows: int = 64
    extra_rows: int = 96
    templates: int = 2
    masked_fraction: float = 0.15
    template_rate: float = 0.5
    alignment_drop_rate: float = 0.1
    shallow_rate: float = 0.2
    few_clusters_rate: float = 0.3
    backbone_rate: float = 0.1
    max_template_identity: float = 0.95
    template_side_chains: bool = False

    @property
    def clusters(self) -> int:
        """The number of rows of the MSA representation without template rows."""
        return self.msa_rows - self.templates


def array_shapes(settings: TrainingSampleSettings, crop: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Return shape and dtype of each array of a sample."""
    slots, clusters, extra = settings.templates, settings.clusters, settings.extra_rows
    return {
        "aatype": ((crop,), np.uint8),
        "seq_mask": ((crop,), np.uint8),
        "break_before": ((crop,), np.uint8),
        "atom14": ((crop, 14, 3), np.int16),
        "atom_bits": ((crop,), np.int16),
        "true_msa": ((clusters, crop), np.uint8),
        "masked_msa": ((clusters, crop), np.uint8),
        "bert_mask": ((clusters, crop), np.uint8),
        "row_mask": ((clusters,), np.uint8),
        "extra_msa": ((extra, crop), np.uint8),
        "extra_row_mask": ((extra,), np.uint8),
        "template_aatype": ((slots, crop), np.uint8),
        "template_atom14": ((slots, crop, 14, 3), np.int16),
        "template_atom_bits": ((slots, crop), np.int16),
        "template_mask": ((slots,), np.uint8),
        "clamped": ((), np.uint8),
        "full_atom": ((), np.uint8),
        "chain": ((), np.int32),
    }


class Sampler:
    """A source of samples from a set of chains.

    Args:
        chains: the data.
        split: the chains to train on.
        settings: settings of the samples.
        seed: 0 ≤ seed < 2⁶⁴.
    """

    def __init__(self, chains: ChainSet, split: Split, settings: TrainingSampleSettings, seed: int) -> None:
        self.chains, self.settings, self.seed = chains, settings, seed
        self._pools = tuple(
            (pool, _cumulative_weights(chains, pool)) for pool in (split.train, split.train_backbone)
        )
        # held-out chains may not be templates either
        self._may_be_template = np.zeros(len(chains.ids), bool)
        self._may_be_template[split.train] = True

    def batch(self, first: int, size: int, crop: int, clamped_rate: float = 1.0) -> dict[str, np.ndarray]:
        """Return the samples `first` to `first + size - 1`, stacked, with `crop` residues each.

        `clamped_rate` is the share of the samples whose backbone FAPE is clamped.
        """
        arrays = _zero_arrays(self.settings, crop, size)
        for row in range(size):
            random = _generator(self.seed, first + row)
            self._fill(_row(arrays, row), self._draw_chain(random), crop, random)
            arrays["clamped"][row] = random.random() < clamped_rate
        return arrays

    def held_out_batch(self, chains: np.ndarray, crop: int) -> dict[str, np.ndarray]:
        """Return the central crops of held-out chains, with their whole alignments and best templates.

        Chains are indices [size], of which -1 gives a sample of padding.
        """
        arrays = _zero_arrays(self.settings, crop, len(chains))
        for row, chain in enumerate(chains):
            arrays["chain"][row] = chain
            if chain >= 0:
                self._fill(
                    _row(arrays, row), int(chain), crop, _generator(self.seed, int(chain)), held_out=True
                )
        return arrays

    def _draw_chain(self, random: np.random.Generator) -> int:
        backbone_only = len(self._pools[1][0]) > 0 and random.random() < self.settings.backbone_rate
        pool, weights = self._pools[int(backbone_only)]
        return int(pool[np.searchsorted(weights, random.random() * weights[-1], side="right")])

    def _fill(
        self,
        sample: Mapping[str, np.ndarray],
        chain: int,
        crop: int,
        random: np.random.Generator,
        held_out: bool = False,
    ) -> None:
        """Write one sample into arrays that hold zeros."""
        chains, settings = self.chains, self.settings
        length = int(chains.lengths[chain])
        spare = max(0, length - crop)
        start = spare // 2 if held_out else int(random.integers(spare + 1))
        size = min(length, crop)
        residues = chains.residues(chain)
        window = slice(residues.start + start, residues.start + start + size)
        sample["aatype"][:size] = chains.aatype[window]
        sample["seq_mask"][:size] = 1
        sample["break_before"][:size] = chains.break_before[window]
        sample["break_before"][0] = 1
        sample["atom14"][:size] = chains.atom14[window]
        sample["atom_bits"][:size] = chains.atom_bits[window]
        sample["full_atom"][...] = chain < chains.num_full_atom
        sample["chain"][...] = chain
        alignment = chains.alignment(chain)[:, start : start + size]
        self._fill_alignment(sample, alignment, size, random, held_out)
        if settings.templates and (held_out or random.random() < settings.template_rate):
            self._fill_templates(sample, chain, start, size, random, held_out)

    def _fill_alignment(
        self,
        sample: Mapping[str, np.ndarray],
        alignment: np.ndarray,
        size: int,
        random: np.random.Generator,
        held_out: bool,
    ) -> None:
        settings = self.settings
        rows = len(alignment)
        order = 1 + random.permutation(rows - 1)
        clusters = settings.clusters
        if not held_out:
            choice = random.random()
            if choice < settings.alignment_drop_rate:
                order = order[:0]
            elif choice < settings.alignment_drop_rate + settings.shallow_rate:
                order = order[: int(random.integers(rows))]
            if random.random() < settings.few_clusters_rate:
                clusters = int(random.integers(1, clusters + 1))
        order = np.concatenate([[0], order])
        sampled, extra = order[:clusters], order[clusters : clusters + settings.extra_rows]
        true_msa = alignment[sampled]
        masked = random.random(true_msa.shape, np.float32) < settings.masked_fraction
        row, column = np.nonzero(masked)
        draw = random.random(len(row))
        from_column = alignment[order[random.integers(len(order), size=len(row))], column]
        uniform = random.integers(20, size=len(row))
        replaced = np.where(draw < _TO_UNIFORM, uniform, true_msa[row, column])
        replaced = np.where(draw < _TO_PROFILE, from_column, replaced)
        replaced = np.where(draw < _TO_MASK, MASK, replaced)
        num_sampled = len(sampled)
        sample["true_msa"][:num_sampled, :size] = true_msa
        sample["masked_msa"][:num_sampled, :size] = true_msa
        sample["masked_msa"][row, column] = replaced
        sample["bert_mask"][:num_sampled, :size] = masked
        sample["row_mask"][:num_sampled] = 1
        sample["extra_msa"][: len(extra), :size] = alignment[extra]
        sample["extra_row_mask"][: len(extra)] = 1

    def _fill_templates(
        self,
        sample: Mapping[str, np.ndarray],
        chain: int,
        start: int,
        size: int,
        random: np.random.Generator,
        held_out: bool,
    ) -> None:
        chains, settings = self.chains, self.settings
        hits = chains.hits(chain)
        usable = self._may_be_template[chains.hit_target[hits]]
        usable &= chains.hit_identity[hits] <= settings.max_template_identity
        hits = hits[usable]
        if len(hits) == 0:
            return
        if not held_out:
            count = int(random.integers(1, settings.templates + 1))
            hits = random.permutation(hits)[:count]
        slot = 0
        for hit in hits[: settings.templates]:
            columns = chains.hit_columns(int(hit)).astype(np.int64)
            columns = columns[(columns[:, 0] >= start) & (columns[:, 0] < start + size)]
            if len(columns) == 0:
                continue
            target = int(chains.hit_target[hit])
            source = chains.chain_offset[target] + columns[:, 1]
            positions = columns[:, 0] - start
            sample["template_aatype"][slot] = GAP
            sample["template_aatype"][slot, positions] = chains.aatype[source]
            sample["template_atom14"][slot, positions] = chains.atom14[source]
            bits = chains.atom_bits[source]
            sample["template_atom_bits"][slot, positions] = (
                bits if settings.template_side_chains else bits & BACKBONE_BITS
            )
            sample["template_mask"][slot] = 1
            slot += 1


def _cumulative_weights(chains: ChainSet, pool: np.ndarray) -> np.ndarray:
    """Return the cumulative weights of chains: length divided by the size of the cluster."""
    length = chains.lengths[pool].clip(*_WEIGHED_LENGTHS)
    return np.cumsum(length / chains.cluster_size[pool])


def _generator(seed: int, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, index], np.uint64)))


def _zero_arrays(settings: TrainingSampleSettings, crop: int, size: int) -> dict[str, np.ndarray]:
    shapes = array_shapes(settings, crop)
    return {name: np.zeros((size, *shape), dtype) for name, (shape, dtype) in shapes.items()}


def _row(arrays: Mapping[str, np.ndarray], row: int) -> dict[str, np.ndarray]:
    return {name: array[row, ...] for name, array in arrays.items()}


@dataclass(frozen=True)
class MicroBatch:
    """The samples of one backward pass on one process.

    Args:
        first: index of its first sample.
        size: number of samples.
        crop: number of residues of each sample.
        clamped_rate: share of the samples whose backbone FAPE is clamped.
    """

    first: int
    size: int
    crop: int
    clamped_rate: float


class _Batches(Dataset):
    """Micro-batches as a dataset for `torch.utils.data.DataLoader`."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def __getitem__(self, batch: MicroBatch) -> dict[str, torch.Tensor]:
        arrays = self._sampler.batch(batch.first, batch.size, batch.crop, batch.clamped_rate)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def load_batches(
    sampler: Sampler, batches: Iterator[MicroBatch], workers: int, pin_memory: bool
) -> Iterator[dict[str, torch.Tensor]]:
    """Make micro-batches in worker processes, in the order of `batches`, which may be endless.

    The worker processes end with the iterator, or before this process exits; 0 workers make the batches in
    this one. From pinned memory, copies to a GPU are asynchronous.
    """
    exiting = threading.Event()
    loader = DataLoader(
        _Batches(sampler),
        batch_size=None,
        sampler=itertools.takewhile(lambda _: not exiting.is_set(), batches),
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=pin_memory,
        worker_init_fn=_prepare_worker,
    )
    iterator = iter(loader)
    reference = weakref.ref(iterator)

    def end() -> None:
        # At exit, Python would send SIGTERM to workers, which ignore it, and wait for them. Batches that have
        # been started are made and dropped, and then the workers end.
        exiting.set()
        if (running := reference()) is not None:
            for _ in running:
                pass

    atexit.register(end)
    return iterator


def _prepare_worker(worker_index: int) -> None:
    torch.set_num_threads(1)
    # the main process may end at once, without ending its workers
    end_with_parent()
    # Schedulers and terminals signal all processes of a run. The main process needs its workers until the
    # current step has ended; they end with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
