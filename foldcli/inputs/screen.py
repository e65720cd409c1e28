"""The targets of `foldcli screen`: complexes of chains from sequence files."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from foldcli.inputs.complexes import Complex, pair_all, read_pairs
from foldcli.inputs.names import BACKGROUND_PREFIX
from foldcli.inputs.queries import QuerySources, name_queries, read_named_queries
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures


# of more chains, pairs are drawn from this number
_MAX_DRAWN_FROM = 2000


@dataclass(frozen=True)
class Background:
    """Pairs of chains that a screen predicts in order to compare the requested ones with them."""

    count: int
    seed: int


def find_screen_targets(
    files: Sequence[str],
    pairs: str | None,
    comp_bias_corr: bool,
    matrix: str,
    failures: "Failures",
    background: Background | None = None,
) -> list[tuple[str, Complex]]:
    """Return the (name, complex) pairs of a screen, and those of its background.

    Args:
        files: sequence files; without `pairs`, one or two of them. One file gives all pairs of its different
            chains, two files each chain of the first with each of the second.
        pairs: a table of complexes, see `foldcli.inputs.complexes.read_pairs`; None for all pairs.
        comp_bias_corr: see `read_queries`.
        matrix: see `read_queries`.
        failures: receives files that cannot be read, records that are not single chains, and rows of the
            table that name unknown chains.
        background: the pairs to draw in addition; None for none.

    Raises:
        InputError: the table has no rows, two files have different sequences with the same id, a folder is
            empty, or there are too few other pairs for the background.
    """
    chains = [_read_chains(file, comp_bias_corr, matrix, failures) for file in files]
    if pairs is not None:
        complexes = read_pairs(pairs, _chains_by_id(chains), failures)
    elif len(chains) == 1:
        complexes = [pair for pair in pair_all(chains[0], chains[0]) if pair.chains[0] != pair.chains[1]]
    else:
        complexes = pair_all(*chains)
    named = [(name, target) for name, target in name_queries(complexes) if isinstance(target, Complex)]
    if background is None:
        return named
    drawn = _draw_pairs(_chains_by_id(chains), complexes, background)
    names = [(f"{BACKGROUND_PREFIX}{name}", target) for name, target in name_queries(drawn)]
    return [*named, *((name, target) for name, target in names if isinstance(target, Complex))]


def _draw_pairs(
    chains: dict[str, FastaRecord], requested: Sequence[Complex], background: Background
) -> list[Complex]:
    """Return pairs of different chains that are not part of a requested complex, drawn at random."""
    known = {
        frozenset((a.sequence, b.sequence)) for target in requested for a, b in combinations(target.chains, 2)
    }
    distinct = list({chain.sequence: chain for chain in chains.values()}.values())
    draw = random.Random(background.seed)
    distinct = draw.sample(distinct, min(len(distinct), _MAX_DRAWN_FROM))
    candidates = [
        pair for pair in combinations(distinct, 2) if frozenset(chain.sequence for chain in pair) not in known
    ]
    if len(candidates) < background.count:
        raise InputError(
            f"--background {background.count}: only {len(candidates)} pairs of these chains are not part of "
            "the screen; add chains, or name the pairs to predict with --pairs"
        )
    drawn = draw.sample(candidates, background.count)
    return [pair_all([first], [second])[0] for first, second in drawn]


def _read_chains(file: str, comp_bias_corr: bool, matrix: str, failures: "Failures") -> list[FastaRecord]:
    """Return the single chains of a file; add its other records to the failures."""
    chains = []
    for name, query in read_named_queries(QuerySources([file], comp_bias_corr, matrix), failures):
        if isinstance(query, UnsupportedRecord):
            failures.add(name, query.error())
        elif isinstance(query, Complex) or type(query) is not FastaRecord:
            kind = "a complex" if isinstance(query, Complex) else "an alignment or a profile"
            failures.add(name, InputError(f"{kind}; a screen takes sequences of single chains"))
        else:
            chains.append(query)
    return chains


def _chains_by_id(files: Sequence[Sequence[FastaRecord]]) -> dict[str, FastaRecord]:
    """Return the chains of all files by id."""
    chains: dict[str, FastaRecord] = {}
    for chain in (chain for file in files for chain in file):
        if chains.setdefault(chain.id, chain).sequence != chain.sequence:
            raise InputError(f"two files have different sequences with the id {chain.id!r}")
    return chains
