"""Requests for alignments: everything that the alignment of a query or a complex depends on."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from foldcli.fingerprints import fingerprint
from foldcli.inputs.complexes import Complex, chain_query
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileRecord


@dataclass(frozen=True)
class AlignmentRequest:
    """A request for alignments of queries and complexes with the sequences of one database.

    Args:
        checksums: SHA-256 of the database's parts.
    """

    checksums: dict[str, str]
    settings: AlignmentSettings

    def identity(self, query: FastaRecord | Complex) -> dict[str, object]:
        """Return everything that the alignment of a query or a complex depends on."""
        if isinstance(query, Complex):
            return {"query": query.sequence} | self.chains_identity(query.chains)
        profile: dict[str, object] = {}
        if isinstance(query, ProfileRecord):
            profile["profile"] = hashlib.sha256(query.profile.tobytes()).hexdigest()
            profile["of_family"] = query.of_family
        return profile | {
            "query": query.sequence,
            "header": query.header,
            **self._searched,
        }

    def chains_identity(self, chains: Sequence[FastaRecord]) -> dict[str, object]:
        """Return everything that the alignments of chains, and the pairing of their rows, depend on."""
        return {
            "chains": [self.fingerprint(chain_query(chain)) for chain in chains],
            "pairing": dataclasses.asdict(self.settings.pairing),
            **self._searched,
        }

    @cached_property
    def _searched(self) -> dict[str, object]:
        """The part of an identity that all queries share."""
        return {"database": self.checksums, **self.settings.identity()}

    def fingerprint(self, query: FastaRecord | Complex) -> str:
        """Return the fingerprint of the alignment of a query or a complex."""
        return fingerprint(self.identity(query))
