"""Interfaces between the chains of a complex: scores of pairs of chains, and contacts of their residues."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.output.residues import CONTACT_COLUMNS
from msa.base.errors import InputError

# maximum numbers of rows in the tables of a page
MAX_INTERFACES = 100
MAX_CONTACTS = 200
# column of the page for each key of the score file
SCORE_COLUMNS = {
    "pairwise_iptm": "ipTM",
    "pairwise_actifptm": "actifpTM",
    "ipsae": "ipSAE",
    "pdockq": "pDockQ",
    "pdockq2": "pDockQ2",
    "lis": "LIS",
    "ilis": "iLIS",
}


@dataclass(frozen=True)
class Contact:
    """A pair of residues of two chains within 8 Å.

    Args:
        residues: the residues, such as "A:K12".
        distance: distance of their CB atoms, Å.
        pae: PAE of the second residue if structures are aligned on the first, and the reverse, Å.
    """

    residues: tuple[str, str]
    plddt: tuple[float, float]
    distance: float
    pae: tuple[float, float]


@dataclass(frozen=True)
class ChainInterface:
    """Two chains with their scores and contacts.

    Args:
        scores: the pair's scores in the score file, by the keys of SCORE_COLUMNS; of a score that depends on
            the direction, the larger value.
        contacts: None if there is no table of contacts.
    """

    chains: tuple[str, str]
    scores: dict[str, float] = field(default_factory=dict)
    contacts: tuple[Contact, ...] | None = None


def read_interfaces(scores: dict[str, Any], path: Path) -> tuple[ChainInterface, ...]:
    """Return the interfaces of a model, sorted by their number of contacts, then by their scores.

    Args:
        scores: content of the score file.
        path: the table of contacts, which need not exist.

    Raises:
        InputError: the table cannot be used; names the line.
        TypeError, ValueError: the scores of pairs are not numbers by names such as "A-B".
    """
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for key in SCORE_COLUMNS:
        for name, value in dict(scores.get(key) or {}).items():
            first, second = name.split("-")
            pair_scores = pairs.setdefault(_ordered_pair(first, second), {})
            pair_scores[key] = max(float(value), pair_scores.get(key, 0.0))
    contacts = _read_contacts(path) if path.is_file() else None
    interfaces = [
        ChainInterface(pair, pairs.get(pair, {}), None if contacts is None else contacts.get(pair, ()))
        for pair in dict.fromkeys([*pairs, *(contacts or {})])
    ]
    return tuple(sorted(interfaces, key=_sort_key))


def _ordered_pair(first: str, second: str) -> tuple[str, str]:
    # chains are named A to Z, a to z, 0 to 9, AA and so on
    def key(name: str) -> tuple[int, bool, bool, str]:
        return len(name), name.isdigit(), name.islower(), name

    return (first, second) if key(first) <= key(second) else (second, first)


def _sort_key(interface: ChainInterface) -> tuple[float, ...]:
    scores = [-interface.scores.get(key, 0.0) for key in ("ipsae", "pairwise_iptm")]
    return (-len(interface.contacts or ()), *scores)


def _read_contacts(path: Path) -> dict[tuple[str, str], tuple[Contact, ...]]:
    """Read the table that `model.output.residues.format_contacts` writes, by pairs of chains."""
    contacts: dict[tuple[str, str], list[Contact]] = {}
    number = 0
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as stream:
            rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            for number, row in enumerate(rows, 1):
                if number == 1 and tuple(row) == CONTACT_COLUMNS:
                    continue
                if number == 1 or len(row) != len(CONTACT_COLUMNS):
                    raise ValueError
                plddt, numbers = (float(row[3]), float(row[7])), [float(value) for value in row[8:]]
                residues = (f"{row[0]}:{row[2]}{row[1]}", f"{row[4]}:{row[6]}{row[5]}")
                contact = Contact(residues, plddt, numbers[0], (numbers[1], numbers[2]))
                contacts.setdefault((row[0], row[4]), []).append(contact)
    # the latter if a field is too long
    except (ValueError, csv.Error) as error:
        raise InputError("not a table of contacts", path, max(number, 1)) from error
    return {pair: tuple(pair_contacts) for pair, pair_contacts in contacts.items()}
