"""Which alignments are asked for, and what they depend on."""

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from foldcli.pipeline.fingerprint import fingerprint

if TYPE_CHECKING:
    from msa.database.database import TargetDatabase
    from msa.io.fasta import FastaRecord
    from msa.search.alignment_filter import AlignmentFilter
    from msa.search.search import SearchSettings


@dataclass(frozen=True)
class AlignmentRequest:
    """Alignments of queries with the targets of a database.

    Args:
        checksums: of the database's parts.
        settings: of the search.
        chosen: which hits make the alignment's rows.
    """

    checksums: dict[str, str]
    settings: "SearchSettings"
    chosen: "AlignmentFilter"

    @classmethod
    def of(
        cls, database: "TargetDatabase", settings: "SearchSettings", chosen: "AlignmentFilter"
    ) -> "AlignmentRequest":
        """A request to an opened database."""
        return cls(database.manifest.checksums, settings, chosen)

    def identity(self, query: "FastaRecord") -> dict[str, Any]:
        """What a query's alignment depends on, which the number of threads is no part of.

        Args:
            query: header, residues, and the profile if it has one.
        """
        from msa.profile.pssm import ProfileQuery

        own: dict[str, Any] = {}
        if isinstance(query, ProfileQuery):
            own["profile"] = hashlib.sha256(query.profile.tobytes()).hexdigest()
            own["of_family"] = query.of_family
        return own | {
            "query": query.sequence,
            "header": query.header,
            "database": self.checksums,
            **self.named_settings(),
        }

    def named_settings(self) -> dict[str, Any]:
        """What it depends on beside query and database: of the search, and of the choice of rows."""
        search = {key: value for key, value in asdict(self.settings).items() if key != "threads"}
        return {"search": search, "alignment": asdict(self.chosen)}

    def key(self, query: "FastaRecord") -> str:
        """The fingerprint of a query's alignment."""
        return fingerprint(self.identity(query))
