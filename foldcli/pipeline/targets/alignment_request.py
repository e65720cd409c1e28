"""Requests for alignments: everything that the alignment of a query or a complex depends on."""

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

from foldcli.fingerprints import fingerprint
from foldcli.inputs.complexes import Complex
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileQuery


@dataclass(frozen=True)
class AlignmentRequest:
    """A request for alignments of queries and complexes with the sequences of one database.

    Args:
        checksums: SHA-256 of the database's parts.
        settings: settings of the searches and alignments.
    """

    checksums: dict[str, str]
    settings: AlignmentSettings

    @classmethod
    def to_database(cls, database: TargetDatabase, settings: AlignmentSettings) -> "AlignmentRequest":
        """Make a request to an opened database."""
        return cls(database.manifest.checksums, settings)

    def identity(self, query: FastaRecord | Complex) -> dict[str, Any]:
        """Return everything that the alignment of a query or a complex depends on."""
        if isinstance(query, Complex):
            return {
                "query": query.sequence,
                "chains": [self.fingerprint(chain_query(chain)) for chain in query.chains],
                "pairing": dataclasses.asdict(self.settings.pairing),
                "database": self.checksums,
                **self.settings.identity(),
            }
        profile: dict[str, Any] = {}
        if isinstance(query, ProfileQuery):
            profile["profile"] = hashlib.sha256(query.profile.tobytes()).hexdigest()
            profile["of_family"] = query.of_family
        return profile | {
            "query": query.sequence,
            "header": query.header,
            "database": self.checksums,
            **self.settings.identity(),
        }

    def fingerprint(self, query: FastaRecord | Complex) -> str:
        """Return the fingerprint of the alignment of a query or a complex."""
        return fingerprint(self.identity(query))


def chain_query(chain: FastaRecord) -> FastaRecord:
    """Return the query that a chain is searched with; the same for equal chains of all complexes."""
    return dataclasses.replace(chain, header="query")
