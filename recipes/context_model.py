"""Train the context model: the probability of each residue in homologs, given a residue and its neighbours.

    python recipes/context_model.py PROTEINS.fasta -o msa/profile/context_model.npz --exclude QUERIES.fasta

Needs torch and, in practice, a GPU. Searches with a random sample of the proteins in all of them (three
iterations with BLOSUM62), and takes sequences from the alignments. A sample is a window of one sequence, with
the residues that its homologs of 15 to 45 % identity have at the central position.

The sequences of --exclude, for example the queries of a benchmark, are left out, and so are all proteins that
a search with the sequences of --exclude-relatives finds.

The model predicts by how much a residue is more frequent than in the homologs' composition around it, not its
frequency. Sequences of similar composition thus score no better than others, unless they are homologs.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch

from foldcli.pipeline.search.opening import open_search_engine
from msa.alignments.alignment_rows import code_rows
from msa.alphabet import GAP, STANDARD, encode
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord, first_word, read_fasta
from msa.profile.context import UNKNOWN
from msa.profile.family_profile import conditional_probabilities
from msa.profile.matrices import BLOSUM62, background
from msa.search.database_search import search_many

LENGTHS = 60, 900
"""Lengths of the proteins that are searched with."""
SEARCH = SearchSettings(matrix=BLOSUM62, gap_open=11, num_iterations=3, evalue=1e-3, max_seqs=250)
MAX_RELATIVES = 100_000
"""Proteins that one sequence of --exclude-relatives removes at most."""
SOURCES = 4
"""Rows of each alignment that windows are taken from; the query is one of them."""
IDENTITIES = 0.15, 0.45
"""Identity of a window's sequence with the homologs whose residues it predicts."""
REDUNDANT = 0.62
"""Rows of at least this identity share a weight of 1, as in the blocks of BLOSUM62."""
MIN_ALIGNED = 40
"""Smallest number of residues that two rows have in common columns."""
SAMPLED = 0.7
"""Fraction of the positions that become samples."""
GAPLESS = 6
"""Positions on either side of a window's centre at which rows other than the query must have residues."""
PSEUDOCOUNT = 20.0
"""Weight of the background in the composition of homologs, and of theirs in that of a neighbourhood."""
_RESIDUES = len(STANDARD)


@dataclass(frozen=True)
class Settings:
    """The shape of the model and its training.

    Args:
        neighbours: residues on either side of the central one.
        hidden: units of the hidden layer.
        dropout: fraction of them that is set to 0 in each step.
        substituted: fraction of neighbours that residues of possible homologs replace in each step, so that
            the model cannot learn sequences by heart.
        properties: numbers that describe a residue; all positions share them.
        composition_neighbours: positions on either side whose residues are the composition; 0 for all.
        batch: samples of each step.
        steps: number of steps.
        rate: highest learning rate.
    """

    neighbours: int = 10
    hidden: int = 256
    dropout: float = 0.2
    substituted: float = 0.3
    properties: int = 10
    composition_neighbours: int = 25
    batch: int = 16_384
    steps: int = 3_000
    rate: float = 4e-3


@dataclass(frozen=True)
class Samples:
    """Windows of sequences, and the residues of homologs at their central positions.

    Args:
        windows: uint8 [n, 2 neighbours + 1], residue codes; UNKNOWN beyond the ends.
        observed: float16 [n, 20], weighted frequencies of the homologs' residues.
        composition: float16 [n, 20], frequencies around the position, > 0.
        weights: float32 [n].
    """

    windows: np.ndarray
    observed: np.ndarray
    composition: np.ndarray
    weights: np.ndarray

    @classmethod
    def concatenate(cls, parts: list["Samples"]) -> "Samples":
        """Join samples."""
        fields = "windows", "observed", "composition", "weights"
        return cls(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))


def open_database(proteins: dict[str, str], folder: Path) -> TargetDatabase:
    """Build a database of proteins."""
    fasta = folder / "proteins.fasta"
    fasta.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in proteins.items()))
    build_database([fasta], folder / "db", BuildSettings(overwrite=True))
    return TargetDatabase.open(folder / "db")


def without_relatives(
    proteins: dict[str, str], others: list[FastaRecord], folder: Path, engine: Engine, threads: int
) -> dict[str, str]:
    """Return the proteins that a search with other sequences does not find."""
    settings = replace(SEARCH, max_seqs=MAX_RELATIVES, threads=threads)
    found = search_many(others, open_database(proteins, folder), settings, engine=engine)
    relatives = {first_word(header) for _, hits in found for header in hits.headers}
    print(f"{len(relatives):,} of {len(proteins):,} proteins are relatives", flush=True)
    return {name: sequence for name, sequence in proteins.items() if name not in relatives}


def alignment(query: FastaRecord, hits: Hits) -> np.ndarray:
    """Return the rows of an alignment, the query first, uint8 [rows, length]."""
    is_other = np.array([first_word(header) != query.id for header in hits.headers], bool)
    return code_rows(encode(query.sequence), hits.subset(is_other))


def compositions(observed: np.ndarray, is_observed: np.ndarray, neighbours: int) -> np.ndarray:
    """Compute the composition around each position, without the position itself, float64 [length, 20]."""
    length, standard = len(observed), background()[:_RESIDUES] / background()[:_RESIDUES].sum()
    overall = (observed.sum(axis=0) + PSEUDOCOUNT * standard) / (is_observed.sum() + PSEUDOCOUNT)
    if not neighbours:
        return np.tile(overall, (length, 1))
    first = np.maximum(np.arange(length) - neighbours, 0)
    end = np.minimum(np.arange(length) + neighbours + 1, length)
    sums = np.concatenate([np.zeros((1, _RESIDUES)), np.cumsum(observed, axis=0)])
    counts = np.concatenate([[0], np.cumsum(is_observed)])
    around = sums[end] - sums[first] - observed
    count = (counts[end] - counts[first] - is_observed)[:, None]
    return np.asarray((around + PSEUDOCOUNT * overall) / (count + PSEUDOCOUNT))


def family_samples(name: str, rows: np.ndarray, settings: Settings) -> list[Samples]:
    """Return the samples of one alignment, uint8 [rows, length]; the name of its query seeds their choice."""
    count, length = rows.shape
    if count == 1:
        return []
    rng = np.random.default_rng(list(name.encode()))
    one_hot = (rows[:, :, None] == np.arange(_RESIDUES)).astype(np.float32)
    flat, is_residue = one_hot.reshape(count, -1), one_hot.any(axis=2).astype(np.float32)
    common = is_residue @ is_residue.T
    identities = flat @ flat.T / np.maximum(common, 1)
    sizes = is_residue.sum(axis=1)
    is_redundant = (identities > REDUNDANT) & (common > 0.5 * np.minimum.outer(sizes, sizes))
    row_weights = 1 / np.maximum(is_redundant.sum(axis=1), 1)
    sources = [0, *(1 + rng.permutation(count - 1)[: SOURCES - 1]).tolist()]
    samples = []
    for source in sources:
        identity, own = identities[source], rows[source]
        related = (identity >= IDENTITIES[0]) & (identity <= IDENTITIES[1]) & (common[source] >= MIN_ALIGNED)
        counts = (np.where(related, row_weights, 0).astype(np.float32) @ flat).reshape(length, _RESIDUES)
        totals = counts.sum(axis=1)
        is_observed = totals > 0
        gaps = np.convolve(np.pad(own == GAP, GAPLESS), np.ones(2 * GAPLESS + 1), "valid")
        usable = is_observed & (own < _RESIDUES) & (rng.random(length) < SAMPLED)
        usable &= (gaps == 0) | (source == 0)
        selected = np.flatnonzero(usable)
        observed = counts / np.where(is_observed, totals, 1)[:, None]
        around = compositions(observed, is_observed, settings.composition_neighbours)
        padded = np.pad(np.minimum(own, UNKNOWN), settings.neighbours, constant_values=UNKNOWN)
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * settings.neighbours + 1)
        # many homologs count no more than a few
        weights = totals / (1 + totals / 4) / len(sources) ** 0.5
        samples.append(
            Samples(
                windows[selected],
                observed[selected].astype(np.float16),
                around[selected].astype(np.float16),
                weights[selected].astype(np.float32),
            )
        )
    return samples


def substitute(windows: torch.Tensor, cumulated: torch.Tensor, fraction: float) -> torch.Tensor:
    """Replace a fraction of the neighbours by residues of possible homologs.

    Args:
        windows: int64 [n, 2 neighbours + 1], residue codes.
        cumulated: float32 [21, 20], cumulated probabilities of homologs' residues, by residue.
        fraction: of the neighbours that may change.
    """
    drawn = torch.rand(windows.shape, device=windows.device)
    residues = (cumulated[windows][..., :-1] < drawn[..., None]).sum(dim=2)
    is_replaced = (torch.rand_like(drawn) < fraction) & (windows < UNKNOWN)
    is_replaced[:, windows.shape[1] // 2] = False
    return torch.where(is_replaced, residues, windows)


def train(samples: Samples, settings: Settings, device: str) -> dict[str, np.ndarray]:
    """Train the model; return its arrays as `msa.profile.context` reads them."""
    torch.manual_seed(0)
    standard = background()[:_RESIDUES]
    conditional = np.concatenate([conditional_probabilities(BLOSUM62).T, [standard / standard.sum()]])
    odds = np.log(conditional / standard) * (np.arange(_RESIDUES + 1) < _RESIDUES)[:, None]

    def parameter(values: np.ndarray | torch.Tensor) -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.as_tensor(values, dtype=torch.float32, device=device))

    width, letters = 2 * settings.neighbours + 1, UNKNOWN + 1
    windows, observed, composition, weights = (
        torch.from_numpy(array).to(device)
        for array in (samples.windows, samples.observed, samples.composition, samples.weights)
    )
    residues = parameter(torch.randn(letters, settings.properties))
    # standard deviation of the embedding: 0.1
    scale = 0.1 / settings.properties**0.5
    positions = parameter(scale * torch.randn(width, settings.properties, settings.hidden))
    bias = parameter(torch.zeros(settings.hidden))
    output = parameter(torch.zeros(settings.hidden, _RESIDUES))
    base = parameter(odds)
    optimizer = torch.optim.Adam([residues, positions, bias, output, base], lr=settings.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, total_steps=settings.steps + 1)
    offsets = letters * torch.arange(width, device=device)
    cumulated = torch.as_tensor(conditional.cumsum(axis=1), dtype=torch.float32, device=device)
    for step in range(settings.steps):
        batch = torch.randint(len(windows), (settings.batch,), device=device)
        window = substitute(windows[batch].long(), cumulated, settings.substituted)
        embedding = (residues @ positions).flatten(0, 1)
        hidden = torch.nn.functional.embedding_bag(window + offsets, embedding, mode="sum") + bias
        hidden = torch.nn.functional.dropout(torch.relu(hidden), settings.dropout)
        scores = base[window[:, settings.neighbours]] + hidden @ output
        predicted = torch.log_softmax(scores + composition[batch].float().log(), dim=1)
        losses = -(observed[batch].float() * predicted).sum(dim=1)
        loss = (losses * weights[batch]).sum() / weights[batch].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 250 == 249:
            print(f"step {step + 1}: {loss.item():.4f} nats per residue", flush=True)
    embedding = (residues @ positions).flatten(0, 1)
    arrays = [each.detach().cpu().numpy() for each in (embedding, bias, output, base)]
    # integers, so that their sum does not depend on the order in which a machine adds them
    unit = np.float32(np.abs(arrays[0]).max() / np.iinfo(np.int16).max)
    return {
        "embedding": np.rint(arrays[0] / unit).astype(np.int16).reshape(width, letters, -1),
        "bias": np.rint(arrays[1] / unit).astype(np.int32),
        "output": arrays[2] * unit,
        "base": arrays[3],
    }


def main() -> None:
    """Train the model with the proteins of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("proteins", type=Path, help="FASTA file")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--exclude", type=Path, help="FASTA file of sequences that are left out")
    parser.add_argument("--exclude-relatives", type=Path, metavar="FILE", help="FASTA file of sequences")
    parser.add_argument("--queries", type=int, default=12_000, help="proteins that are searched with")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=16)
    options = parser.parse_args()
    excluded = {record.sequence for record in read_fasta(options.exclude)} if options.exclude else set()
    sequences = [record.sequence for record in read_fasta(options.proteins)]
    proteins = {f"p{k}": each for k, each in enumerate(sequences) if each not in excluded}
    settings, threads = Settings(), options.processes
    # processes start before the threads of the engine
    with tempfile.TemporaryDirectory() as name, Pool(options.processes) as pool:
        folder, engine = Path(name), open_search_engine(options.device)
        if options.exclude_relatives:
            others = list(read_fasta(options.exclude_relatives))
            proteins = without_relatives(proteins, others, folder, engine, threads)
        candidates = [each for each in proteins if LENGTHS[0] <= len(proteins[each]) <= LENGTHS[1]]
        count = min(options.queries, len(candidates))
        chosen = np.random.default_rng(0).choice(candidates, count, replace=False).tolist()
        queries = [FastaRecord(each, proteins[each]) for each in chosen]
        database = open_database(proteins, folder)
        found = search_many(queries, database, replace(SEARCH, threads=threads), engine=engine)
        pending = [
            pool.apply_async(family_samples, (query.id, alignment(query, hits), settings))
            for query, hits in found
        ]
        samples = Samples.concatenate([each for family in pending for each in family.get()])
    print(f"{len(samples.weights):,} samples")
    with options.output.open("wb") as file:
        np.savez_compressed(file, **train(samples, settings, options.device))


if __name__ == "__main__":
    main()
