"""What comes before the network for each target of `fold` and `predict`: search, features, random draws."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli import colabfold_layout, done
from foldcli.alignment_inputs import ENTRY_SUFFIX, AlignmentTarget
from foldcli.cached_targets import CachedTarget
from foldcli.fingerprint import file_sha256, fingerprint
from foldcli.job_draws import JobDraws
from foldcli.pipeline import SearchStep, TargetRun, cached_features, entry_features, unfinished_folder
from foldcli.place import Place
from foldcli.predictor import Predictor
from msa.fasta import FastaRecord

if TYPE_CHECKING:
    import numpy as np

# what a target is given as: a query to search with, or what is past the search
Given = FastaRecord | AlignmentTarget | CachedTarget


@dataclass
class Loaded:
    """A target that is ready for the network.

    Args:
        target: on its way.
        draws: the features of its jobs.
        key: the target's fingerprint.
        identity: what it was taken of.
    """

    target: TargetRun
    draws: JobDraws
    key: str
    identity: dict[str, Any]


@dataclass(frozen=True)
class TargetLoader:
    """Loads targets from queries, from alignments, and from entries of a feature cache.

    Args:
        place: where the results go.
        cache: folder of the feature cache.
        predictor: what will predict.
        parameters: what tells its networks from others; see `check_parameters`.
        verify: compare entries with their checksums.
        step: searches with queries; None where there are none, or no database yet.
    """

    place: Place
    cache: Path
    predictor: Predictor
    parameters: list[dict[str, str]]
    verify: bool = True
    step: SearchStep | None = None

    def load(self, named: tuple[str, Given]) -> Loaded | None:
        """A target's features, from which nothing has been drawn; None if it is finished.

        Raises:
            InputError: its alignments cannot be read or do not fit each other; its entry is damaged.
            OSError: a file cannot be read, the cache cannot be written.
        """
        name, given = named
        identity = self._identity(given)
        key = fingerprint(identity)
        target = TargetRun.begin(self.place.files(name))
        anew = self.place.overwrite or _is_read_once(given)
        if not anew and done.is_done(target.files, key):
            return None
        if anew:
            target.clear()
        draws = self.predictor.draws(self._features(target, given), unfinished_folder(target, key))
        return Loaded(target, draws, key, identity)

    def load_and_draw(self, named: tuple[str, Given]) -> Loaded | None:
        """`load`, and the first job's draw; made to run in a background thread."""
        loaded = self.load(named)
        if loaded is not None:
            loaded.draws.make_first()
        return loaded

    def look(self, given: Given) -> tuple[int, str | None]:
        """Residues and fingerprint of a target, None where it cannot be known; raises what `load` does."""
        if isinstance(given, FastaRecord):
            from msa.search import check_query

            check_query(given)
            return len(given.sequence), None if self.step is None else fingerprint(self._identity(given))
        identity = self._identity(given)
        if isinstance(given, CachedTarget):
            residues = given.residues()
        elif given.files[0].endswith(ENTRY_SUFFIX):
            residues = int(_entry(given.files[0])["msa"].shape[1])
        else:
            residues = len(given.read()[0].query)
        return residues, None if _is_read_once(given) else fingerprint(identity)

    def _features(self, target: TargetRun, given: Given) -> "dict[str, np.ndarray]":
        if isinstance(given, CachedTarget):
            return entry_features(target, lambda: given.features(self.verify))
        if isinstance(given, FastaRecord):
            return self._searched(target, given)
        if given.files[0].endswith(ENTRY_SUFFIX):
            return entry_features(target, lambda: _entry(given.files[0], self.verify))
        contents = given.contents()
        if "-" not in given.files:
            target.facts["alignment"] = str(Path(given.files[0]).resolve())
        features = cached_features(target, lambda: given.parse(contents), self.cache, self.verify)
        if target.files.layout == "colabfold" and len(contents) == 1:
            residues = features["msa"].shape[1]
            colabfold_layout.keep_alignment(target.files, contents[0], residues)
        return features

    def _searched(self, target: TargetRun, query: FastaRecord) -> "dict[str, np.ndarray]":
        from msa.alignments import read_alignment

        assert self.step is not None
        a3m = self.step.run(target, query)
        return cached_features(target, lambda: [read_alignment(a3m)], self.cache, self.verify)

    def _identity(self, given: Given) -> dict[str, Any]:
        if isinstance(given, CachedTarget):
            own = given.identity
        elif isinstance(given, FastaRecord):
            assert self.step is not None
            own = self.step.identity(given)
        else:
            own = {"input": _content(given)}
        return own | {"parameters": self.parameters, "predict": asdict(self.predictor.settings)}


def _is_read_once(given: Given) -> bool:
    """Whether it comes from standard input, and so can never be taken for a finished target's."""
    return isinstance(given, AlignmentTarget) and "-" in given.files


def _content(given: AlignmentTarget) -> str | list[str] | None:
    """What stands for a target's features in its fingerprint; None if it can be read only once."""
    if _is_read_once(given):
        return None
    sums = [file_sha256(Path(path)) for path in given.files]
    return sums[0] if len(sums) == 1 else sums


def _entry(path: str, verify: bool = True) -> Any:
    from features.cache import read_entry

    return read_entry(path, verify=verify)
