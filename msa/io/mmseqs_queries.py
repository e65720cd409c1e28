"""Queries from MMseqs2 databases: of sequences, and of profiles.

A profile's entry has 25 bytes for each position: 20 scores in eighths of bits, signed, in the order of the
residues' letters; the numbers of the query's and of the consensus's residue; the effective number of
sequences and two gap costs. Scores are log odds, which give back the frequencies that they were made of.
"""

import os
from collections.abc import Iterator
from io import BytesIO

import numpy as np

from msa.alphabet import STANDARD
from msa.errors import InputError
from msa.io.fasta import FastaRecord, read_records
from msa.io.mmseqs_database import Entries, MmseqsFiles, open_mmseqs
from msa.io.mmseqs_files import PADDED_LETTERS, PROFILES, kind_of
from msa.io.mmseqs_records import HEADER_TABLE, Lookup, MmseqsSource
from msa.profile.matrices import DEFAULT_MATRIX, background
from msa.profile.pssm import ProfileQuery, profile_from_frequencies

_POSITION, _SCORES, _QUERY = 25, 20, 20
_EIGHTHS_OF_BITS = 8
_BLOCK_BYTES = 4 << 20
_AS_IS = np.arange(256, dtype=np.int16)


def mmseqs_queries(
    path: str | os.PathLike[str], comp_bias_corr: bool = True, matrix: str = DEFAULT_MATRIX
) -> Iterator[FastaRecord]:
    """The entries of a database, in the order of their keys.

    Args:
        path: the database's name.
        comp_bias_corr, matrix: of profiles; see `profile_from_frequencies`.

    Returns:
        FastaRecord of sequences, ProfileQuery of profiles.

    Raises:
        InputError: it holds neither, or is incomplete, truncated or damaged; names file and key.
    """
    if kind_of(path) == PROFILES:
        return _profiles(os.fspath(path), comp_bias_corr, matrix)
    return _sequences(os.fspath(path))


def _sequences(name: str) -> Iterator[FastaRecord]:
    source = MmseqsSource(name, _BLOCK_BYTES)
    for block in source.blocks():
        source.parse(block)  # which names the key of a bad entry
        yield from read_records(BytesIO(block.data), name)


def _profiles(name: str, comp_bias_corr: bool, matrix: str) -> Iterator[FastaRecord]:
    profiles, headers = open_mmseqs(name, PROFILES)
    lookup = Lookup(headers)
    for entries in profiles.pieces():
        named = lookup.find(entries.keys)
        for k in range(len(entries)):
            content = _content(profiles, entries[k : k + 1], _AS_IS)
            header = _content(headers, named[k : k + 1], HEADER_TABLE).tobytes().decode("utf-8", "replace")
            if len(content) == 0 or len(content) % _POSITION:
                raise InputError(
                    f"the profile with key {entries.keys[k]} has {len(content)} bytes, no multiple of "
                    f"{_POSITION}: made by an MMseqs2 older than this reads",
                    name,
                )
            positions = content.reshape(-1, _POSITION)
            if positions[:, _QUERY].max() >= len(PADDED_LETTERS):
                raise InputError(
                    f"damaged: no residue's number in the entry with key {entries.keys[k]}", name
                )
            sequence = "".join(PADDED_LETTERS[number] for number in positions[:, _QUERY].tolist())
            frequencies = _frequencies(positions[:, :_SCORES])
            profile = profile_from_frequencies(frequencies, comp_bias_corr, matrix)
            yield ProfileQuery(header.strip(), sequence, profile, f"an entry of {name}")


def _content(files: MmseqsFiles, entry: Entries, table: np.ndarray) -> np.ndarray:
    """uint8, the content of one entry."""
    content = np.empty(int(entry.lengths[0]), np.uint8)
    files.copy(entry, content, np.zeros(1, np.int64), table)
    return content


def _frequencies(scores: np.ndarray) -> np.ndarray:
    """float64 [length, 20] of scores uint8 [length, 20], in our order of the residues."""
    odds = np.exp2(scores.view(np.int8) / _EIGHTHS_OF_BITS)
    order = [PADDED_LETTERS.index(letter) for letter in STANDARD]
    return np.asarray(odds[:, order] * background()[: len(STANDARD)])
