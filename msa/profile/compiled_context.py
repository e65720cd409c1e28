"""The network of msa/profile/context.py for sequences, compiled, and context profiles computed with it.

Log odds differ in the last bit at most, and the rounded scores of profiles are equal.
"""

import math

import numpy as np

from msa.jit import kernel

_BLOCK = 64
"""Positions that are computed at once."""


@kernel
def add_changes(embedding, bias, output, codes, log_odds):  # type: ignore[no-untyped-def]
    """Add the changes that the neighbours of each residue cause to log odds.

    Args:
        embedding: float32 [window, 21, hidden], integers.
        bias: float32 [hidden], integers.
        output: float64 [hidden, 20]; the number of hidden units is a multiple of 4.
        codes: int64 [length + window - 1], with unknown residues beyond the ends of the sequence.
        log_odds: float64 [length, 20], nats, changed.
    """
    hidden = np.empty_like(bias)
    # positions are the last axis, along which loops become vector instructions
    active = np.zeros((len(bias), _BLOCK))
    changes = np.empty((log_odds.shape[1], _BLOCK))
    for first in range(0, len(log_odds), _BLOCK):
        count = min(_BLOCK, len(log_odds) - first)
        for position in range(count):
            _fill_hidden(embedding, bias, codes[first + position :], hidden)
            for k in range(len(hidden)):
                active[k, position] = max(hidden[k], np.float32(0))
        changes[:] = 0
        for k in range(0, len(active), 4):
            a, b, c, d = active[k], active[k + 1], active[k + 2], active[k + 3]
            for residue in range(len(changes)):
                of_a, of_b = output[k, residue], output[k + 1, residue]
                of_c, of_d = output[k + 2, residue], output[k + 3, residue]
                change = changes[residue]
                for position in range(_BLOCK):
                    change[position] += (
                        a[position] * of_a + b[position] * of_b + c[position] * of_c + d[position] * of_d
                    )
        for position in range(count):
            for residue in range(len(changes)):
                log_odds[first + position, residue] += changes[residue, position]


@kernel
def _fill_hidden(embedding, bias, codes, hidden):  # type: ignore[no-untyped-def]
    """Write the sums of the hidden layer at one position; those of integers do not depend on the order."""
    hidden[:] = bias
    whole = len(embedding) - len(embedding) % 3
    for offset in range(0, whole, 3):
        a, b = embedding[offset, codes[offset]], embedding[offset + 1, codes[offset + 1]]
        c = embedding[offset + 2, codes[offset + 2]]
        for k in range(len(hidden)):
            hidden[k] += a[k] + b[k] + c[k]
    for offset in range(whole, len(embedding)):
        a = embedding[offset, codes[offset]]
        for k in range(len(hidden)):
            hidden[k] += a[k]


@kernel
def fill_profile(tables, codes, profile):  # type: ignore[no-untyped-def]
    """Write the context profile of a part of a sequence; see `msa.profile.pssm.query_profile`.

    Args:
        tables: see `msa.profile.pssm.ContextTables`.
        codes: uint8 [length + window - 1], letter codes of the part and of its neighbours, with X beyond the
            ends of the sequence.
        profile: int16 [length, 26], written.
    """
    unknown = tables.base.shape[1]
    replaced = np.empty(len(codes), np.int64)
    for k in range(len(codes)):
        replaced[k] = min(tables.replaced[codes[k]], unknown)
    neighbours = len(tables.embedding) // 2
    log_odds = np.empty((len(profile), unknown))
    for position in range(len(profile)):
        log_odds[position] = tables.base[replaced[position + neighbours]]
    add_changes(tables.embedding, tables.bias, tables.output, replaced, log_odds)
    for position in range(len(profile)):
        row = profile[position]
        if replaced[position + neighbours] == unknown:
            row[:] = tables.unknown_rows[codes[position + neighbours]]
        else:
            _fill_row(tables, log_odds[position], row)


@kernel
def _fill_row(tables, log_odds, row):  # type: ignore[no-untyped-def]
    """Write the scores of one position of a profile, given the log odds up to a constant."""
    largest = log_odds.max()
    total, mean = 0.0, 0.0
    for residue in range(len(log_odds)):
        total += tables.background[residue] * math.exp(log_odds[residue] - largest)
    constant = largest + math.log(total)
    for residue in range(len(log_odds)):
        score = (log_odds[residue] - constant) / tables.lambda_
        mean += tables.background[residue] * score
        row[residue] = _rounded(score)
    for letter in range(len(log_odds), len(row)):
        first, second = tables.stands_for[letter]
        if first < 0:
            row[letter] = min(_rounded(mean), -1)
        else:
            row[letter] = math.floor((row[first] + row[second]) / 2 + 0.5)


@kernel
def _rounded(score):  # type: ignore[no-untyped-def]
    """Round a score; exp and log may differ in the last bit between machines."""
    return math.floor(np.rint(score * 1e6) / 1e6 + 0.5)
