"""Accuracy of copying the best template: lDDT-CA of library chains against each other, by identity.

usage: python benchmarks/template_copy.py [--every N] [--alignments FOLDER] [--library LIBRARY] [--threads N]
                                          [--device DEVICE]

Every N-th full-atom chain of the library is searched in the library without itself: with its sequence, or
with the profile of its alignment from FOLDER (chains.npz.xz and msas.npz.xz of the training data). Of the
templates that cover at least 70 % of the chain, the one with most expected correct pairs is copied. lDDT-CA
is given for all residues of the chain, where those without an aligned residue count 0, and for the aligned
residues alone. A second table compares expected and observed lDDT-CA of the models of `--params template`.
"""

import io
import lzma
import time
from pathlib import Path

import numpy as np
from options import parse_options

from features.chemistry.residues import CA
from features.templates.candidates import TemplateHits
from features.templates.homology import copy_best_template
from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.settings import TemplateSettings
from features.templates.search import alignment_query, search_templates_many
from foldcli.pipeline.search.opening import open_search_engine
from model.comparison.scores import lddt
from msa.alignments.files import Alignment
from msa.alphabet import STANDARD
from msa.io.fasta import FastaRecord

MIN_COVERAGE = 0.7
MAX_IDENTITY = 0.95
BINS = [(0.0, 0.25), (0.25, 0.3), (0.3, 0.4), (0.4, 0.6), (0.6, 0.95)]
COVERAGES = [(0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)]
SAME_AS_QUERY = 22  # code of a letter of the training alignments


def lddt_ca(
    model: np.ndarray, model_mask: np.ndarray, reference: np.ndarray, reference_mask: np.ndarray
) -> np.ndarray:
    """Return lDDT-CA of each residue of the reference, NaN where there is none.

    Args:
        model: [residues, 3], Å.
        model_mask: [residues]; absent residues count as wrong.
        reference: [residues, 3], Å.
        reference_mask: [residues].
    """
    present = np.where(model_mask[:, None], model, np.nan)[reference_mask]
    scores = np.full(len(model), np.nan)
    scores[reference_mask] = lddt(present, reference[reference_mask], np.arange(len(present)))[1]
    return scores


def load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a numpy archive inside xz."""
    with np.load(io.BytesIO(lzma.open(path).read())) as archive:
        return dict(archive)


def read_alignments(folder: Path) -> dict[str, Alignment]:
    """Return the alignments of the training data by the sequence of their first row."""
    chains, msas = load(folder / "chains.npz.xz"), load(folder / "msas.npz.xz")
    letters = np.frombuffer((STANDARD + "X-").encode(), np.uint8)
    ends = np.cumsum(chains["length"])
    aatypes = dict(zip(chains["ids"].tolist(), np.split(chains["aatype"], ends[:-1]), strict=True))
    alignments = {}
    start = 0
    for name, rows in zip(msas["ids"].tolist(), msas["rows"].tolist(), strict=True):
        query = aatypes[name]
        tokens = msas["tokens"][start : start + len(query) * rows].reshape(len(query), rows).T
        start += tokens.size
        tokens = np.where(tokens == SAME_AS_QUERY, query, tokens)
        alignment = Alignment(("query",) * rows, letters[tokens], np.zeros(tokens.shape, np.uint8))
        alignments[alignment.query] = alignment
    return alignments


def compare_models(library: StructureLibrary, results: dict[int, TemplateHits]) -> None:
    """Print expected and observed lDDT-CA of models copied from the best template, by coverage.

    Args:
        library: the library.
        results: template hits by number of the query in the library, which is no template itself.
    """
    models: list[tuple[float, float, float]] = []
    for index, hits in results.items():
        query = library.chain(index)
        templates = [each for each in hits.templates if each.index != index]
        chains = [library.chain(each.index) for each in templates]
        model = copy_best_template(TemplateHits(hits.query, templates, chains))
        if model is None:
            continue
        score = lddt_ca(model.positions[:, CA], model.modelled, query.positions[:, CA], query.mask[:, CA])
        coverage = float(model.modelled.mean())
        scored = model.modelled & np.isfinite(score)
        models.append(
            (coverage, float(model.expected_lddt[scored].mean()), float(100 * score[scored].mean()))
        )
    coverages, expected, observed = np.array(models).T
    print(f"{len(models)} models: mean error {np.abs(expected - observed).mean():.1f}")
    print("coverage     models  expected  observed")
    for low, high in COVERAGES:
        inside = (coverages >= low) & (coverages < high)
        if inside.any():
            means = f"{expected[inside].mean():9.1f} {observed[inside].mean():9.1f}"
            print(f"{low:.2f} to {min(high, 1):.2f} {inside.sum():6d} {means}")


def main() -> None:
    """Print the mean lDDT-CA of copied templates by identity."""
    arguments = parse_options(
        __doc__, every=4, alignments=Path, library=EMBEDDED, threads=2, device="cpu"
    )  # fmt: skip
    library = StructureLibrary.open(arguments.library)
    settings = TemplateSettings(threads=arguments.threads)
    full_atom = [index for index in range(len(library)) if library.source(index) != "cgdms"]
    queries = full_atom[:: arguments.every]
    alignments = {} if arguments.alignments is None else read_alignments(arguments.alignments)
    sequences = [library.database.sequence(index) for index in queries]
    records = [
        alignment_query(alignments[sequence]) if sequence in alignments else FastaRecord("query", sequence)
        for sequence in sequences
    ]
    engine = open_search_engine(arguments.device)
    start = time.perf_counter()
    results = [hits for _, hits in search_templates_many(records, library, settings, engine)]
    seconds = (time.perf_counter() - start) / len(records)
    print(f"template search: {1000 * seconds:.1f} ms a query")
    covered = 0
    chains: list[tuple[float, float, float]] = []  # identity, lDDT of all and of aligned residues
    for index, hits in zip(queries, results, strict=True):
        query = library.chain(index)
        others = [each for each in hits.candidates if each.index != index and each.expected_pairs is not None]
        usable = [e for e in others if e.query_coverage >= MIN_COVERAGE and e.identity < MAX_IDENTITY]
        if not usable:
            continue
        covered += 1
        best = max(usable, key=lambda candidate: candidate.expected_pairs or 0.0)
        template = library.chain(best.index)
        rows, columns = best.pairs.T
        model = np.zeros((len(query.sequence), 3))
        mask = np.zeros(len(query.sequence), bool)
        model[rows], mask[rows] = template.positions[columns, CA], template.mask[columns, CA]
        scores = lddt_ca(model, mask, query.positions[:, CA], query.mask[:, CA])
        aligned = lddt_ca(model, mask, query.positions[:, CA], query.mask[:, CA] & mask)
        chains.append((best.identity, float(np.nanmean(scores)), float(np.nanmean(aligned))))
    identity, score, aligned_score = np.array(chains).T
    print(f"{len(queries)} chains, {covered} with a template that covers {MIN_COVERAGE:.0%}")
    print("identity     chains  all residues  aligned")
    for low, high in BINS:
        inside = (identity >= low) & (identity < high)
        if inside.any():
            means = f"{score[inside].mean():12.3f} {aligned_score[inside].mean():10.3f}"
            print(f"{low:.2f} to {high:.2f} {inside.sum():6d} {means}")
    compare_models(library, dict(zip(queries, results, strict=True)))


if __name__ == "__main__":
    main()
