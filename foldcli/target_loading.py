"""What comes before the network for each target of `foldcli predict`; made to run in a background thread."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foldcli import colabfold_layout, done
from foldcli.alignment_inputs import ENTRY_SUFFIX, AlignmentTarget
from foldcli.cached_targets import CachedTarget
from foldcli.fingerprint import file_sha256, fingerprint
from foldcli.job_draws import JobDraws
from foldcli.layout import LayoutName
from foldcli.pipeline import TargetRun, cached_features, entry_features, unfinished_folder
from foldcli.predictor import Predictor


@dataclass
class Loaded:
    """A target that is ready for the network.

    Args:
        target: on its way.
        draws: the features of its jobs, those of the first drawn.
        key: the target's fingerprint.
        identity: what it was taken of.
    """

    target: TargetRun
    draws: JobDraws
    key: str
    identity: dict[str, Any]


@dataclass(frozen=True)
class TargetLoader:
    """Loads targets from alignments, and from entries of a feature cache.

    Args:
        out, layout: where the results go.
        cache: folder of the feature cache.
        predictor: what will predict.
        parameters: what tells its networks from others; see `check_parameters`.
        overwrite: load targets that are finished, too.
        verify: compare entries with their checksums.
    """

    out: Path
    layout: LayoutName
    cache: Path
    predictor: Predictor
    parameters: list[dict[str, str]]
    overwrite: bool
    verify: bool = True

    def load(self, named: tuple[str, AlignmentTarget | CachedTarget]) -> Loaded | None:
        """A target's features and its first draw; None if it is finished.

        Raises:
            InputError: its alignments cannot be read or do not fit each other; its entry is damaged.
            OSError: a file cannot be read, the cache cannot be written.
        """
        name, given = named
        identity = self._identity(given)
        content = identity["input"]
        key = fingerprint(identity)
        target = TargetRun.begin(name, self.out, self.layout)
        if content and not self.overwrite and done.is_done(target.files, key):
            return None
        if self.overwrite or not content:
            target.clear()
        if isinstance(given, CachedTarget):
            features = entry_features(target, lambda: given.features(self.verify))
        elif given.files[0].endswith(ENTRY_SUFFIX):
            features = entry_features(target, lambda: _entry(given.files[0], self.verify))
        else:
            contents = given.contents()
            if "-" not in given.files:
                target.facts["alignment"] = str(Path(given.files[0]).resolve())
            features = cached_features(target, lambda: given.parse(contents), self.cache, self.verify)
            if self.layout == "colabfold" and len(contents) == 1:
                residues = features["msa"].shape[1]
                colabfold_layout.keep_alignment(target.files, contents[0], residues)
        draws = self.predictor.draws(features, unfinished_folder(target, key))
        draws.make_first()
        return Loaded(target, draws, key, identity)

    def look(self, given: AlignmentTarget | CachedTarget) -> tuple[int, str | None]:
        """Residues and fingerprint of a target, None where it cannot be known; raises what `load` does."""
        identity = self._identity(given)
        if isinstance(given, CachedTarget):
            residues = given.residues()
        elif given.files[0].endswith(ENTRY_SUFFIX):
            residues = int(_entry(given.files[0])["msa"].shape[1])
        else:
            residues = len(given.read()[0].query)
        return residues, fingerprint(identity) if identity["input"] else None

    def _identity(self, given: AlignmentTarget | CachedTarget) -> dict[str, Any]:
        settings = asdict(self.predictor.settings)
        own = given.identity if isinstance(given, CachedTarget) else {"input": _content(given)}
        return own | {"parameters": self.parameters, "predict": settings}


def _content(given: AlignmentTarget) -> str | list[str] | None:
    """What stands for a target's features in its fingerprint."""
    # standard input can be read only once, and is never taken for a finished target's
    if "-" in given.files:
        return None
    sums = [file_sha256(Path(path)) for path in given.files]
    return sums[0] if len(sums) == 1 else sums


def _entry(path: str, verify: bool = True) -> Any:
    from features.cache import read_entry

    return read_entry(path, verify=verify)
