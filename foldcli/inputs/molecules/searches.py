"""The proteins of jobs as queries of `foldcli search`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from foldcli.inputs.complexes import Complex
from foldcli.inputs.formats.tables import make_identifier
from foldcli.inputs.molecules.read import list_job_files, read_job_file
from foldcli.inputs.queries import Query
from foldcli.logs import logger
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord


@dataclass(frozen=True)
class JobSources:
    """Files of jobs, whose proteins are searched; see `foldcli.inputs.queries.QueryReaders`."""

    inputs: Sequence[str]

    def readers(self) -> Iterator[tuple[str, Callable[[], Sequence[Query]]]]:
        """Yield each file with a function that reads its queries, and with one for each error of a job.

        Raises:
            InputError: a folder has no job file.
        """
        for path in list_job_files(self.inputs):
            errors: list[InputError] = []
            yield path, partial(_read_complexes, path, errors)
            for error in errors:
                yield path, partial(_fail, error)


def _read_complexes(path: str, errors: list[InputError]) -> list[Complex]:
    """Return the searched proteins of each job in a file, copies included; append the errors of jobs."""
    complexes = []
    for job in read_job_file(path, errors.append):
        name = make_identifier(job.name)
        chains = tuple(
            FastaRecord(f"{name}_{polymer.chains[0]}", polymer.sequence)
            for polymer in job.proteins_to_search()
            for _ in polymer.chains
        )
        if chains:
            complexes.append(Complex(name, chains, path=job.path or "", line=job.line))
        else:
            logger.info("%s: no protein without an alignment, so nothing to search", name)
    return complexes


def _fail(error: InputError) -> NoReturn:
    raise error
