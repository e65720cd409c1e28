"""Made-up scores of complexes, for tests of what is done with them."""

import numpy as np

from model.prediction import ComplexScores, InterfaceContacts


def made_up_scores(
    pairs: np.ndarray, contacts: InterfaceContacts, ptm: float = 0.5, iptm: float = 0.4, actifptm: float = 0.3
) -> ComplexScores:
    """Return scores of a complex, with the values [C, C] for all scores of pairs."""
    names = ("pairwise_iptm", "pairwise_actifptm", "ipsae", "pdockq", "pdockq2", "lis", "ilis", "pae_min")
    return ComplexScores(
        ptm=ptm, iptm=iptm, actifptm=actifptm, contacts=contacts,
        per_chain_ptm=pairs[0], per_chain_pdockq2=pairs[0], **dict.fromkeys(names, pairs),
    )  # fmt: skip
