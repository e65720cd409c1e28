"""Models as queries of searches by structure."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from features.chemistry.residues import CA
from features.templates.library.chains import TemplateChain
from features.templates.library.structure_files import entry_id, read_chains
from foldcli.logs import logger
from msa.base.errors import InputError
from msa.base.residues import ATOM37

_BACKBONE = [ATOM37.index(name) for name in ("N", "CA", "C")]
_MIN_STATES = 0.5
"""Share of residues with a backbone below which a chain cannot be searched."""


def read_queries(path: str | os.PathLike[str], entry: str | None = None) -> list[TemplateChain]:
    """Return the chains of a model that have a backbone; those without are named in a warning.

    Args:
        path: an mmCIF or PDB file.
        entry: name of the model; None for that of the file. Chains of several are NAME_A, NAME_B, ...

    Raises:
        InputError: the file is not a structure, or no chain has a backbone.
    """
    remarks: list[str] = []
    entry = entry or entry_id(Path(path).name)
    chains = read_chains(path, entry, remarks)
    reasons = {chain.id: reason for chain in chains if (reason := _reason_against(chain))}
    queries = [chain for chain in chains if chain.id not in reasons]
    if not queries:
        raise InputError(f"cannot be searched by structure: {next(iter(reasons.values()))}", path)
    for remark in [*remarks, *(f"{name} is not searched: {reason}" for name, reason in reasons.items())]:
        logger.warning("%s: %s", path, remark)
    return [replace(queries[0], id=entry)] if len(chains) == 1 else queries


def _reason_against(chain: TemplateChain) -> str | None:
    """Return why a chain has too few structure states, or None."""
    complete = chain.mask[:, _BACKBONE].all(axis=1).sum()
    if complete >= _MIN_STATES * chain.resolved:
        return None
    if set(np.flatnonzero(chain.mask.any(axis=0)).tolist()) <= {CA}:
        return "only CA atoms, and structure states need N, CA and C"
    return f"{complete} of {chain.resolved} residues have N, CA and C"
