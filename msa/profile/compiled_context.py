"""The network of msa/profile/context.py for sequences, compiled; results differ in the last bit at most."""

import numpy as np

from msa.jit import kernel


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
    hidden = np.empty_like(bias)
    for position in range(len(log_odds)):
        hidden[:] = bias
        for offset in range(len(embedding)):
            weights = embedding[offset, codes[position + offset]]
            for k in range(len(hidden)):
                hidden[k] += weights[k]
        for k in range(len(hidden)):
            if hidden[k] > 0:
                for residue in range(log_odds.shape[1]):
                    log_odds[position, residue] += hidden[k] * output[k, residue]
