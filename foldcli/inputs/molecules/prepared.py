"""Prepared jobs: in a feature cache, jobs with all that `foldcli predict` needs to predict them.

CACHE/jobs/ab/abcdef…/ is named by the SHA-256 of the version, the job's name, and all that its inputs depend
on. It has `job.json`, the compressed files that `fold` writes before it predicts, and `seed_N.json` for each
seed, which names the sample (`features.alphafold3.samples`) of the job with this seed.
"""

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from features.assembly.job import MoleculeJob
from features.assembly.job_json import job_of_json
from foldcli.fingerprints import fingerprint
from foldcli.inputs.cached_targets import looks_like_name
from foldcli.inputs.names import check_unique_names
from foldcli.logs import logger
from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import FileKind, TargetFiles
from msa.base.atomic import atomic_write, writing_cache
from msa.base.errors import InputError, MissingError
from msa.base.json_files import read_json, write_json
from msa.io.compression import read_bytes

if TYPE_CHECKING:
    from foldcli.inputs.failures import Failures

FORMAT = "foldcli.job"
SCHEMA_VERSION = 1
# subfolder of a feature cache
_FOLDER = "jobs"
_JOB_FILE = "job.json"
_FILES: tuple[FileKind, ...] = ("alignment", "hits", "templates")


class PreparedRecord(msgspec.Struct, frozen=True):
    """The state of a target in job.json; `used` has the values of each `UsedTemplate`."""

    facts: Facts
    warnings: list[str]
    used: list[list[Any]]


@dataclass(frozen=True)
class Preparation:
    """The folder of a prepared job.

    Args:
        identity: all that its inputs depend on but the templates; see `Family.target_identity`.
        templates: all that its templates depend on; None without a search for templates.
    """

    cache: Path
    name: str
    identity: Mapping[str, Any] = field(repr=False)
    templates: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def folder(self) -> Path:
        """The folder, which need not exist."""
        key = fingerprint([FORMAT, SCHEMA_VERSION, self.name, self.identity, self.templates])
        return self.cache / _FOLDER / key[:2] / key

    def sample_key(self, seed: int) -> str | None:
        """Return the key of the sample of a seed; None if the cache does not have both."""
        from features.alphafold3.samples import sample_path  # imports the dictionary of components

        try:
            key = str(read_json(self.folder / f"seed_{seed}.json")["sample"])
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return key if sample_path(self.cache, key).is_file() else None

    def seeds(self) -> tuple[int, ...]:
        """Return the prepared seeds, in ascending order."""
        numbers = (path.stem.removeprefix("seed_") for path in self.folder.glob("seed_*.json"))
        return tuple(sorted(int(number) for number in numbers if number.isdecimal()))

    def has(self, seeds: Iterable[int]) -> bool:
        """Return True if the job has been prepared with all of these seeds."""
        return (self.folder / _JOB_FILE).is_file() and all(self.sample_key(seed) for seed in seeds)

    def read(self) -> PreparedRecord:
        """Return facts, warnings and templates as given to `write`.

        Raises:
            InputError: the file is damaged.
        """
        path = self.folder / _JOB_FILE
        try:
            return read_json(path, PreparedRecord)
        except ValueError:
            raise InputError("damaged: run `foldcli cache-features` again", path) from None

    def write(
        self,
        files: TargetFiles,
        facts: Facts,
        warnings: Sequence[str],
        used: Sequence[Any],
        samples: Mapping[int, str],
    ) -> None:
        """Write the job, its staged files and the keys of its samples; `job.json` comes last.

        Raises:
            UnwritableFolder, OSError: the cache cannot be written.
        """
        content = {
            "format": FORMAT,
            "version": SCHEMA_VERSION,
            "name": self.name,
            "identity": self.identity,
            "templates": self.templates,
            "facts": facts.as_json(),
            "warnings": warnings,
            "used": used,
        }
        with writing_cache(self.cache):
            self.folder.mkdir(parents=True, exist_ok=True)
            for kind in _FILES:
                if (staged := files.staged_path(kind)).is_file():
                    with atomic_write(self._file(kind), "wb") as stream:
                        stream.write(gzip.compress(staged.read_bytes(), mtime=0))
            for seed, key in samples.items():
                write_json(self.folder / f"seed_{seed}.json", {"sample": key})
            write_json(self.folder / _JOB_FILE, content)

    def stage_files(self, files: TargetFiles) -> None:
        """Stage the files that `fold` writes before it predicts.

        Raises:
            InputError: a file is damaged.
        """
        for kind in _FILES:
            if (path := self._file(kind)).is_file():
                with atomic_write(files.staged_path(kind), "wb") as stream:
                    stream.write(read_bytes(path))

    def _file(self, kind: FileKind) -> Path:
        return self.folder / f"{kind}.gz"


@dataclass(frozen=True)
class PreparedJob:
    """A job whose inputs are in a feature cache.

    Args:
        job: the molecules, without alignments and templates.
        preparations: its folders, which differ in the source of templates only.
        requested_seeds: the seeds of its job file; those of the cache if it is given by name.
    """

    name: str
    job: MoleculeJob
    preparations: tuple[Preparation, ...]
    requested_seeds: tuple[int, ...] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """All that its inputs depend on but the templates."""
        return dict(self.preparations[0].identity)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds to predict unless the command line names others."""
        if self.requested_seeds is not None:
            return self.requested_seeds
        return tuple(sorted({seed for each in self.preparations for seed in each.seeds()}))

    def with_templates(self, templates: Mapping[str, Any] | None) -> Preparation:
        """Return the folder whose templates have this source.

        Raises:
            InputError: there is none.
        """
        key = fingerprint(templates)
        for preparation in self.preparations:
            if fingerprint(preparation.templates) == key:
                return preparation
        reason = "its inputs in the feature cache have other templates: give the template options that "
        raise InputError(f"{reason}`foldcli cache-features` got, or run it again", self.name)


def find_prepared_targets(
    inputs: Sequence[str],
    all_cached: bool,
    cache: Path,
    failures: "Failures",
    target_identity: Callable[[MoleculeJob], Mapping[str, Any]],
    is_searched: Callable[[MoleculeJob], bool],
) -> list[tuple[str, MoleculeJob | PreparedJob]]:
    """Return the names and jobs of `foldcli predict`.

    A job that needs no search is predicted even if it has not been prepared.

    Args:
        inputs: job files, folders of them, `-`, names of prepared jobs.
        all_cached: use all prepared jobs instead of the inputs.
        cache: folder of the feature cache.
        failures: receives what cannot be read, and jobs that need a search and have not been prepared.
        target_identity: returns all that the inputs of a job depend on but its search.
        is_searched: returns True if a job needs a search.

    Raises:
        InputError: two targets have the same name, a folder has no jobs, or the cache has none.
    """
    from foldcli.inputs.molecules.read import read_jobs  # imports the dictionary of components

    prepared = _PreparedJobs(cache, failures)
    for path, error in prepared.unreadable:
        if all_cached:
            failures.add(str(path), error)
        else:
            logger.warning("%s", error)
    if all_cached:
        if not prepared.names and not prepared.unreadable:
            raise InputError("no prepared jobs: `foldcli cache-features --params openfold3` adds them", cache)
        return list(prepared.find_all(prepared.names))
    names = [text for text in inputs if looks_like_name(text)]
    jobs = read_jobs([text for text in inputs if text not in names], failures)
    found: list[tuple[str, MoleculeJob | PreparedJob]] = []
    for name, job in jobs:
        try:
            match = prepared.match(name, job, target_identity(job))
            if match is None and is_searched(job):
                raise MissingError(
                    f"{name}: the feature cache {cache} has no alignments of its proteins",
                    "Prepare it with the same name: foldcli cache-features JOB --params openfold3 --db DB; "
                    "or use `foldcli fold`, which searches.",
                )
            found.append((name, job if match is None else match))
        except (InputError, MissingError) as error:
            failures.add(name, error)
    found += prepared.find_all(names)
    check_unique_names((name, "the cache" if name in names else "the jobs") for name, _ in found)
    return found


class _PreparedJobs:
    """The prepared jobs of a feature cache.

    Args:
        failures: receives names that are not found, or are ambiguous.
    """

    def __init__(self, cache: Path, failures: "Failures") -> None:
        self._cache, self._failures = cache, failures
        self.unreadable: list[tuple[Path, InputError]] = []
        # by name and identity without templates
        self._found: dict[str, dict[str, list[Preparation]]] = {}
        for preparation in self._read_all():
            same_name = self._found.setdefault(preparation.name, {})
            same_name.setdefault(fingerprint(preparation.identity), []).append(preparation)
        self.names = sorted(self._found)

    def _read_all(self) -> Iterator[Preparation]:
        for path in sorted((self._cache / _FOLDER).glob(f"??/*/{_JOB_FILE}")):
            try:
                content = read_json(path)
                if content["version"] != SCHEMA_VERSION:
                    continue
                job_of_json(content["identity"]["molecules"])
                yield Preparation(self._cache, content["name"], content["identity"], content["templates"])
            except (OSError, ValueError, LookupError, TypeError) as error:
                self.unreadable.append((path, InputError(f"damaged prepared job: {error}", path)))

    def find_all(self, names: Iterable[str]) -> Iterator[tuple[str, PreparedJob]]:
        """Yield the jobs of these names; add those that are missing or ambiguous to the failures."""
        for name in names:
            try:
                yield name, self._find(name)
            except InputError as error:
                self._failures.add(name, error)

    def _find(self, name: str) -> PreparedJob:
        if name not in self._found:
            close = get_close_matches(name, self.names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            reason = f"no such file, and no prepared job of this name in the feature cache {self._cache}"
            raise InputError(reason + hint, name)
        return self._only(name, list(self._found[name].values()))

    def match(self, name: str, job: MoleculeJob, identity: Mapping[str, Any]) -> PreparedJob | None:
        """Return the prepared job of this name with these molecules; None if there is none."""
        candidates = [
            preparations
            for preparations in self._found.get(name, {}).values()
            if all(preparations[0].identity.get(key) == value for key, value in identity.items())
        ]
        return self._only(name, candidates, job.seeds) if candidates else None

    def _only(
        self, name: str, candidates: Sequence[Sequence[Preparation]], seeds: tuple[int, ...] | None = None
    ) -> PreparedJob:
        if len(candidates) > 1:
            folders = " and ".join(str(preparations[0].folder) for preparations in candidates)
            reason = f"several prepared jobs have this name, with other molecules or databases: {folders}"
            raise InputError(f"{reason}; delete those that you do not want", name)
        job = job_of_json(candidates[0][0].identity["molecules"], name)
        return PreparedJob(name, job, tuple(candidates[0]), seeds)
