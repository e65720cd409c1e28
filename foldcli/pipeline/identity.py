"""What a target is given as, and what its prediction depends on."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.pipeline.alignment_request import AlignmentRequest
from foldcli.pipeline.fingerprint import file_sha256, fingerprint
from foldcli.pipeline.predictor import PredictSettings
from msa.io.fasta import FastaRecord

# what a target is given as: a query to search with, or what is past the search
Given = FastaRecord | AlignmentTarget | CachedTarget


@dataclass(frozen=True)
class Identities:
    """What a run's targets are known by.

    Args:
        parameters: what tells the run's networks from others; see `check_parameters`.
        settings: of the predictions.
        request: the alignments of queries; None where there are no queries, or no database yet.
    """

    parameters: list[dict[str, str]]
    settings: PredictSettings
    request: AlignmentRequest | None = None

    def of(self, given: Given) -> dict[str, Any]:
        """All that a target's prediction depends on.

        Raises:
            OSError: a file cannot be read.
        """
        if isinstance(given, CachedTarget):
            own = given.identity
        elif isinstance(given, FastaRecord):
            assert self.request is not None
            own = self.request.identity(given)
        else:
            own = {"input": _content(given)}
        return own | {"parameters": self.parameters, "predict": asdict(self.settings)}

    def look(self, given: Given) -> tuple[int, str | None]:
        """Residues and fingerprint of a target, None where it cannot be known.

        Raises:
            InputError: its alignments cannot be read, or its query cannot be searched with.
            OSError: a file cannot be read.
        """
        if isinstance(given, FastaRecord):
            from msa.search.search import check_query

            check_query(given)
            return len(given.sequence), None if self.request is None else fingerprint(self.of(given))
        identity = self.of(given)
        if isinstance(given, CachedTarget):
            residues = given.residues()
        elif given.files[0].endswith(ENTRY_SUFFIX):
            residues = int(read_entry(given.files[0])["msa"].shape[1])
        else:
            residues = len(given.read()[0].query)
        return residues, None if is_read_once(given) else fingerprint(identity)


def is_read_once(given: Given) -> bool:
    """Whether it comes from standard input, and so can never be taken for a finished target's."""
    return isinstance(given, AlignmentTarget) and "-" in given.files


def read_entry(path: str, verify: bool = True) -> Any:
    """The features of a feature cache's entry that was named as a file."""
    from features.cache import read_entry

    return read_entry(path, verify=verify)


def _content(given: AlignmentTarget) -> str | list[str] | None:
    """What stands for a target's features in its fingerprint; None if it can be read only once."""
    if is_read_once(given):
        return None
    sums = [file_sha256(Path(path)) for path in given.files]
    return sums[0] if len(sums) == 1 else sums
