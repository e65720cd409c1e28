"""What comes before the network for each target of `fold` and `predict`: search, features, random draws."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.outputs import colabfold_layout, done
from foldcli.pipeline.features import cached_features, entry_features
from foldcli.pipeline.fingerprint import fingerprint
from foldcli.pipeline.identity import Given, Identities, is_read_once, read_entry
from foldcli.pipeline.job_draws import JobDraws
from foldcli.pipeline.output_location import Place
from foldcli.pipeline.predictor import Predictor
from foldcli.pipeline.search_stage import SearchStep
from foldcli.pipeline.target_run import TargetRun
from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    import numpy as np


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

    @property
    def unfinished(self) -> Path:
        """Where finished models lie until all are."""
        return unfinished_folder(self.target, self.key)


def unfinished_folder(target: TargetRun, key: str) -> Path:
    """Where finished models of a target with this fingerprint lie until all are."""
    return target.work / f"predict-{key[:16]}"


@dataclass(frozen=True)
class TargetLoader:
    """Loads targets from queries, from alignments, and from entries of a feature cache.

    Args:
        place: where the results go.
        cache: folder of the feature cache.
        predictor: what will predict.
        identities: what the targets are known by.
        verify: compare entries with their checksums.
        step: searches with queries; None where there are none.
    """

    place: Place
    cache: Path
    predictor: Predictor
    identities: Identities
    verify: bool = True
    step: SearchStep | None = None

    def load(self, named: tuple[str, Given]) -> Loaded | None:
        """A target's features, from which nothing has been drawn; None if it is finished.

        Raises:
            InputError: its alignments cannot be read or do not fit each other; its entry is damaged.
            OSError: a file cannot be read, the cache cannot be written.
        """
        name, given = named
        identity = self.identities.of(given)
        key = fingerprint(identity)
        target = TargetRun.begin(self.place.files(name))
        anew = self.place.overwrite or is_read_once(given)
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

    def _features(self, target: TargetRun, given: Given) -> "dict[str, np.ndarray]":
        if isinstance(given, CachedTarget):
            return entry_features(target, lambda: given.features(self.verify))
        if isinstance(given, FastaRecord):
            return self._searched(target, given)
        if given.files[0].endswith(ENTRY_SUFFIX):
            return entry_features(target, lambda: read_entry(given.files[0], self.verify))
        contents = given.read_contents()
        if "-" not in given.files:
            target.facts["alignment"] = str(Path(given.files[0]).resolve())
        features = cached_features(target, lambda: given.parse(contents), self.cache, self.verify)
        if target.files.layout == "colabfold" and len(contents) == 1:
            residues = features["msa"].shape[1]
            colabfold_layout.keep_alignment(target.files, contents[0], residues)
        return features

    def _searched(self, target: TargetRun, query: FastaRecord) -> "dict[str, np.ndarray]":
        from msa.io.alignments import read_alignment

        assert self.step is not None
        a3m = self.step.run(target, query)
        return cached_features(target, lambda: [read_alignment(a3m)], self.cache, self.verify)
