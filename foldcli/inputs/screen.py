"""The targets of `foldcli screen`: complexes of chains from sequence files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldcli.inputs.complexes import Complex, pair_all, read_pairs
from foldcli.inputs.job_files import AlignedRecord
from foldcli.inputs.queries import Query, QuerySources, name_queries, read_named_queries
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures


def find_screen_targets(
    files: Sequence[str], pairs: str | None, comp_bias_corr: bool, matrix: str, failures: "Failures"
) -> list[tuple[str, Complex]]:
    """Return the (name, complex) pairs of a screen.

    Args:
        files: sequence files; without `pairs`, one or two of them. One file gives all pairs of its different
            chains, two files each chain of the first with each of the second.
        pairs: a table of complexes, see `foldcli.inputs.complexes.read_pairs`; None for all pairs.
        comp_bias_corr: see `read_queries`.
        matrix: see `read_queries`.
        failures: receives files that cannot be read, records that are not single chains, and rows of the
            table that name unknown chains.

    Raises:
        InputError: the table has no rows, two files have different sequences with the same id, or a folder is
            empty.
    """
    chains = [_read_chains(file, comp_bias_corr, matrix, failures) for file in files]
    if pairs is not None:
        complexes = read_pairs(pairs, _chains_by_id(chains), failures)
    elif len(chains) == 1:
        complexes = [pair for pair in pair_all(chains[0], chains[0]) if pair.chains[0] != pair.chains[1]]
    else:
        complexes = pair_all(*chains)
    return [(name, target) for name, target in name_queries(complexes) if isinstance(target, Complex)]


def _read_chains(file: str, comp_bias_corr: bool, matrix: str, failures: "Failures") -> list[FastaRecord]:
    """Return the single chains of a file; add its other records to the failures."""
    chains = []
    for name, query in read_named_queries(QuerySources([file], comp_bias_corr, matrix), failures):
        if isinstance(query, UnsupportedRecord):
            failures.add(name, query.error())
        elif isinstance(query, Complex) or type(query) not in (FastaRecord, AlignedRecord):
            failures.add(name, InputError(f"{_describe(query)}; a screen takes sequences of single chains"))
        else:
            chains.append(query)
    return chains


def _describe(query: Query) -> str:
    return "a complex" if isinstance(query, Complex) else "an alignment or a profile"


def _chains_by_id(files: Sequence[Sequence[FastaRecord]]) -> dict[str, FastaRecord]:
    """Return the chains of all files by id.

    Raises:
        InputError: two files have different chains of the same id.
    """
    chains: dict[str, FastaRecord] = {}
    for chain in (chain for file in files for chain in file):
        if chains.setdefault(chain.id, chain).sequence != chain.sequence:
            raise InputError(f"two files have different sequences with the id {chain.id!r}")
    return chains
