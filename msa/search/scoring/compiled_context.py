"""The network of msa/profile/context.py for sequences, compiled, and context profiles computed with it.

Log odds differ in the last bit at most, and the rounded scores of profiles are equal.
"""

import math

import numpy as np

from msa.base.cpu_kernels.jit import kernel

_WINDOW, _HIDDEN, _RESIDUES = 21, 256, 20
"""Sizes of the model, as constants, so that the compiler unrolls loops: residues that the network reads,
hidden units, and standard residues."""


@kernel
def add_changes(embedding, bias, output, codes, log_odds):  # type: ignore[no-untyped-def]
    """Add the changes that the neighbours of each residue cause to log odds.

    Args:
        embedding: float32 [window, 21, hidden], integers.
        bias: float32 [hidden], integers.
        output: float64 [hidden, 20].
        codes: int64 [length + window - 1], with unknown residues beyond the ends of the sequence.
        log_odds: float64 [length, 20], nats, changed.
    """
    hidden, changes = np.empty(_HIDDEN, np.float32), np.empty(_RESIDUES)
    # about a seventh of the hidden units are active; four of them are added at once
    active, units = np.empty(_HIDDEN + 3), np.zeros(_HIDDEN + 3, np.int64)
    for position in range(len(log_odds)):
        for k in range(_HIDDEN):
            hidden[k] = bias[k]
        for offset in range(_WINDOW):
            row = embedding[offset, codes[position + offset]]
            for k in range(_HIDDEN):
                hidden[k] += row[k]
        count = 0
        for k in range(_HIDDEN):
            units[count], active[count] = k, hidden[k]
            count += hidden[k] > 0
        for k in range(count, count + 3):
            active[k] = 0
        for residue in range(_RESIDUES):
            changes[residue] = 0
        for k in range(0, count, 4):
            i, j, m, n = units[k], units[k + 1], units[k + 2], units[k + 3]
            of_i, of_j, of_m, of_n = active[k], active[k + 1], active[k + 2], active[k + 3]
            for residue in range(_RESIDUES):
                changes[residue] += (
                    of_i * output[i, residue]
                    + of_j * output[j, residue]
                    + of_m * output[m, residue]
                    + of_n * output[n, residue]
                )
        for residue in range(_RESIDUES):
            log_odds[position, residue] += changes[residue]


@kernel
def fill_profile(tables, codes, profile):  # type: ignore[no-untyped-def]
    """Write the context profile of a part of a sequence; see `msa.profile.pssm.query_profile`.

    Args:
        tables: see `msa.profile.pssm.ContextTables`.
        codes: uint8 [length + window - 1], letter codes of the part and of its neighbours, with X beyond the
            ends of the sequence.
        profile: int16 [length, 26], written.
    """
    replaced = np.empty(len(codes), np.int64)
    for k in range(len(codes)):
        replaced[k] = min(tables.replaced[codes[k]], _RESIDUES)
    neighbours = _WINDOW // 2
    log_odds = np.empty((len(profile), _RESIDUES))
    for position in range(len(profile)):
        for residue in range(_RESIDUES):
            log_odds[position, residue] = tables.base[replaced[position + neighbours], residue]
    add_changes(tables.embedding, tables.bias, tables.output, replaced, log_odds)
    background, stands_for, scale = tables.background, tables.stands_for, 1 / tables.lambda_
    for position in range(len(profile)):
        if replaced[position + neighbours] == _RESIDUES:
            for letter in range(profile.shape[1]):
                profile[position, letter] = tables.unknown_rows[codes[position + neighbours], letter]
            continue
        largest, total, mean = -np.inf, 0.0, 0.0
        for residue in range(_RESIDUES):
            largest = max(largest, log_odds[position, residue])
        for residue in range(_RESIDUES):
            total += background[residue] * math.exp(log_odds[position, residue] - largest)
        constant = largest + math.log(total)
        for residue in range(_RESIDUES):
            score = (log_odds[position, residue] - constant) * scale
            mean += background[residue] * score
            log_odds[position, residue] = score
        for residue in range(_RESIDUES):
            profile[position, residue] = _rounded(log_odds[position, residue])
        for letter in range(_RESIDUES, profile.shape[1]):
            first, second = stands_for[letter, 0], stands_for[letter, 1]
            if first >= 0:
                sum_ = profile[position, first] + profile[position, second]
                profile[position, letter] = np.floor(sum_ * 0.5 + 0.5)
            else:
                profile[position, letter] = min(_rounded(mean), -1.0)


@kernel
def _rounded(score):  # type: ignore[no-untyped-def]
    """Round a score; exp and log may differ in the last bit between machines."""
    return np.floor(np.rint(score * 1e6) * 1e-6 + 0.5)
