"""A run of `foldcli search` with job files of other programs: search, fill in, write."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event

from features.chemistry.residue_classes import MoleculeKind
from features.complexes.a3m import pair_a3m, parse_chains
from features.templates.candidates import TemplateHits
from features.templates.search import alignment_query, search_templates
from foldcli.exports.boltz import BoltzDocument
from foldcli.exports.chai import ChaiDocument
from foldcli.exports.document import AlignmentFiles, ChainRows, ExportJob
from foldcli.exports.json_documents import (
    AlphaFold3Document,
    JsonDocument,
    OpenFold3Document,
    ProtenixDocument,
)
from foldcli.exports.templates import log_unknown_dates
from foldcli.fingerprints import fingerprint
from foldcli.inputs.complexes import chain_query
from foldcli.inputs.failures import Failures
from foldcli.inputs.formats.job_fields import Refuse
from foldcli.inputs.names import FASTA_SUFFIXES, file_safe_name, list_files
from foldcli.inputs.queries import name_of_file
from foldcli.logs import logger
from foldcli.paths import check_writable_folder, make_writable_folder
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.search.chain_search import ChainSearch, ChainSearchResult
from foldcli.pipeline.search.stores import CacheStore, ChainStore
from foldcli.pipeline.targets.alignment_request import AlignmentRequest
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.order import LARGE_BATCH
from foldcli.search_runs.settings import SearchRun
from foldcli.version import VERSION
from msa.alignments.files import parse_alignment
from msa.base.atomic import atomic_write
from msa.base.digests import file_sha256
from msa.base.errors import InputError
from msa.base.json_files import read_json, write_json
from msa.base.temporary_names import remove_abandoned_files
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord

Document = JsonDocument | BoltzDocument | ChaiDocument


@dataclass(frozen=True)
class ExportFormat:
    """The job files of a program.

    Attributes:
        read: reads a file; its arguments are the content, the path, and a function that records the errors of
            single jobs.
    """

    read: Callable[[bytes, str, Refuse], Document]
    suffixes: tuple[str, ...]


FORMATS = {
    "af3": ExportFormat(AlphaFold3Document, (".json",)),
    "boltz": ExportFormat(BoltzDocument, (".yaml", ".yml")),
    "openfold3": ExportFormat(OpenFold3Document, (".json",)),
    "protenix": ExportFormat(ProtenixDocument, (".json",)),
    "chai": ExportFormat(ChaiDocument, FASTA_SUFFIXES),
}
# the requests that the alignments of a run answer
_Requests = Mapping[MoleculeKind, AlignmentRequest]


@dataclass(frozen=True)
class ExportRun:
    """A run that gives job files their alignments.

    Args:
        inputs: job files, folders, or `-`.
        in_files: for af3, write alignments into files instead of into the job.
        templates: for af3, the library that is searched for templates; None for none.
        rna: the search for RNA; None leaves RNA chains without alignments.
    """

    inputs: Sequence[str]
    format_name: str
    run: SearchRun
    in_files: bool = False
    templates: TemplateStage | None = None
    rna: SearchRun | None = None


@dataclass(frozen=True)
class _Target:
    """A job file with the place of its result.

    Args:
        digest: SHA-256 of its content.
    """

    document: Document
    digest: str
    path: Path

    @property
    def record_path(self) -> Path:
        """Path of the record of the finished file; hidden, because programs read all files of a folder."""
        return self.path.with_name(f".{self.path.name}.done")


def export_jobs(export: ExportRun, folder: Path) -> None:
    """Write the job files with their alignments; a failed job does not stop the others.

    Args:
        export: the run.
        folder: folder for the results; created if it does not exist.

    Raises:
        SomeTargetsFailed, TargetFailed: files or jobs failed; see `Failures.finish`.
        MissingError: a library that writes the alignments is missing.
    """
    check_writable_folder(folder)
    run = export.run
    failures = Failures(folder, run.shard)
    targets = run.shard.select(
        (target.path.name, target) for target in _read_targets(export, folder, failures)
    )
    if targets:
        stages = {MoleculeKind.PROTEIN: run.stage()}
        if export.rna is not None:
            stages[MoleculeKind.RNA] = export.rna.stage()
        make_writable_folder(folder)
        remove_abandoned_files(folder)
        requests = {molecule: stage.request for molecule, stage in stages.items()}
        assert run.cache is not None
        stores = {
            molecule: ChainStore(CacheStore(run.cache, request)) for molecule, request in requests.items()
        }
        failures.expect(sum(len(target.document.jobs) for _, target in targets))
        unfinished = [target for _, target in targets if not _is_finished(export, target, requests)]
        with TargetLocks(Event()) as locks:
            jobs = [(target, job) for target in unfinished for job in target.document.jobs]
            searched: Iterator[ChainSearchResult[tuple[_Target, ExportJob]]]
            searched = map(ChainSearchResult, jobs)
            for molecule, stage in stages.items():
                search = ChainSearch(stage, stores[molecule], locks, LARGE_BATCH)
                searched = _search(searched, molecule, search)
            _write_targets(export, unfinished, searched, stores, failures)
    failures.finish()


def _search(
    searched: Iterator[ChainSearchResult[tuple[_Target, ExportJob]]],
    molecule: MoleculeKind,
    search: ChainSearch,
) -> Iterator[ChainSearchResult[tuple[_Target, ExportJob]]]:
    """Search the chains of a kind in jobs; those of which an earlier search failed are passed on."""

    def chains(result: ChainSearchResult[tuple[_Target, ExportJob]]) -> list[FastaRecord]:
        return [] if result.error is not None else _queries(result.target[1], molecule)

    for result in search.search_ahead(searched, chains):
        yield replace(result.target, error=result.target.error or result.error)


def _read_targets(export: ExportRun, folder: Path, failures: Failures) -> Iterator[_Target]:
    """Yield the job files; add those that cannot be read, and single jobs, to the failures."""
    tool = FORMATS[export.format_name]
    read = tool.read
    if export.in_files:
        read = partial(AlphaFold3Document, in_files=True)
    names: dict[str, str] = {}
    for path in list_files(export.inputs, tool.suffixes):
        try:
            data = read_bytes(path)
            suffix = next((each for each in tool.suffixes if each in Path(path).suffixes), tool.suffixes[0])
            out = folder / f"{file_safe_name(name_of_file(path))}{suffix}"
            if (other := names.setdefault(out.name, path)) != path:
                raise InputError(f"{other} has the same name", path)
            if path != "-" and out.exists() and out.samefile(path):
                raise InputError("OUT is the folder of the job, which would be overwritten", path)
            document = read(data, path, partial(failures.add, path))
        except (InputError, OSError) as error:
            failures.add(path, error)
            continue
        if document.jobs:
            yield _Target(document, hashlib.sha256(data).hexdigest(), out)


def _queries(job: ExportJob, molecule: MoleculeKind) -> list[FastaRecord]:
    """Return the queries of a job, with their names in messages."""
    job_name = file_safe_name(job.name)
    return [FastaRecord(f"{job_name}_{name}", sequence) for sequence, name in job.sequences(molecule).items()]


def _fingerprint(export: ExportRun, target: _Target, requests: _Requests) -> str:
    """Return the fingerprint of everything that a result depends on."""
    keys = {MoleculeKind.PROTEIN: "chains", MoleculeKind.RNA: "rna"}
    chains = {
        keys[molecule]: [
            request.fingerprint(chain_query(query))
            for job in target.document.jobs
            for query in _queries(job, molecule)
        ]
        for molecule, request in requests.items()
    }
    request = requests[MoleculeKind.PROTEIN]
    return fingerprint(
        chains
        | {
            "format": [VERSION, export.format_name, export.in_files],
            "templates": export.templates and export.templates.identity(),
            "input": target.digest,
            # files next to a job are named by their absolute paths
            "path": target.path.absolute(),
            "database": request.checksums,
            "pairing": asdict(request.settings.pairing),
        }
    )


def _is_finished(export: ExportRun, target: _Target, requests: _Requests) -> bool:
    """Return whether an earlier run wrote the same files, and they are unchanged."""
    if export.run.overwrite:
        return False
    try:
        record = read_json(target.record_path)
        files = {target.path.parent / name: digest for name, digest in record["files"].items()}
        finished = record["fingerprint"] == _fingerprint(export, target, requests)
        if not finished or any(file_sha256(path) != digest for path, digest in files.items()):
            return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
    logger.info("%s: already done", target.path.name)
    return True


def _write_targets(
    export: ExportRun,
    targets: Sequence[_Target],
    searched: Iterator[ChainSearchResult[tuple[_Target, ExportJob]]],
    stores: Mapping[MoleculeKind, ChainStore],
    failures: Failures,
) -> None:
    """Fill in the jobs as they are searched, and write each file when its last job is there."""
    requests = {molecule: store.store.request for molecule, store in stores.items()}
    waiting = {id(target): len(target.document.jobs) for target in targets}
    files = {id(target): AlignmentFiles(target.path.with_suffix(".msa")) for target in targets}
    failed: set[int] = set()
    for result in searched:
        target, job = result.target
        key = id(target)
        error = result.error
        if error is None:
            try:
                found = {
                    molecule: _rows_of_job(job, molecule, store, export.templates)
                    for molecule, store in stores.items()
                }
                for molecule, rows in found.items():
                    target.document.fill(job, molecule, rows, files[key])
                _log_job(job, found)
            except Exception as failure:
                error = failure
        waiting[key] -= 1
        if error is not None:
            failed.add(key)
            failures.record(f"{target.document.path}:{job.line}", error)
        if not waiting[key] and (len(target.document.jobs) > 1 or key not in failed):
            try:
                _write(export, target, files[key], requests, key not in failed)
            except Exception as failure:
                failures.record(target.document.path, failure)


def _rows_of_job(
    job: ExportJob, molecule: MoleculeKind, store: ChainStore, library: TemplateStage | None
) -> dict[str, ChainRows]:
    """Return alignment and templates of each distinct sequence of a job, which have been searched."""
    texts = {
        sequence: store.read(chain_query(FastaRecord("", sequence))) for sequence in job.sequences(molecule)
    }
    # rows of RNA are not paired
    is_protein = molecule == MoleculeKind.PROTEIN
    groups = [list(texts)] if is_protein else [[sequence] for sequence in texts]
    rows = {}
    for group in filter(None, groups):
        chains = parse_chains([texts[sequence] for sequence in group])
        # copies of a sequence count once, so that every pair has rows of different proteins
        paired, unpaired = pair_a3m(chains, [1] * len(group), store.pairing)
        for number, sequence in enumerate(group):
            templates = _templates(texts[sequence], library) if library is not None and is_protein else None
            rows[sequence] = ChainRows(unpaired[number], [pair[number] for pair in paired], templates)
    return rows


def _templates(alignment: bytes, stage: TemplateStage) -> TemplateHits:
    """Return the templates that the profile of an alignment finds."""
    assert stage.library is not None
    return search_templates(alignment_query(parse_alignment(alignment)), stage.library, stage.settings)


def _log_job(job: ExportJob, found: Mapping[MoleculeKind, Mapping[str, ChainRows]]) -> None:
    """Log the numbers of rows that a job got."""
    rows = []
    named = (
        (name, found[kind][sequence]) for kind in found for sequence, name in job.sequences(kind).items()
    )
    for name, chain in named:
        paired = sum(1 for _ in chain.pairs())
        rows.append(f"{name} {len(chain.unpaired) - 1:,} rows and {paired:,} paired")
        if (templates := chain.templates) is not None:
            rows[-1] += f" and {len(templates.templates)} templates"
            log_unknown_dates(f"{job.name}: {name}", templates)
    logger.info("%s: %s", job.name, "; ".join(rows) or "no protein without an alignment")


def _write(
    export: ExportRun, target: _Target, files: AlignmentFiles, requests: _Requests, is_whole: bool
) -> None:
    """Write the job file, then its record, unless a job in it failed."""
    content = target.document.edited()
    # an interrupted run must not leave an old record next to a new file
    target.record_path.unlink(missing_ok=True)
    with atomic_write(target.path, "wb") as stream:
        stream.write(content)
    if not is_whole:
        return
    written = [target.path.absolute(), *files.written]
    record = {
        "fingerprint": _fingerprint(export, target, requests),
        "files": {str(path.relative_to(files.base)): file_sha256(path) for path in written},
    }
    write_json(target.record_path, record, indent=1)
