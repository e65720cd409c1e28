"""AlphaFold 3's input files, of its own program and of its server, as far as one protein chain goes."""

from typing import Any

from foldcli.inputs.jobs import Job, alignment_beside, entities_of, known_keys, mapping_of, text_of
from foldcli.inputs.json_with_lines import Located, parse_json
from msa.errors import InputError
from msa.io.alignments import Alignment, parse_alignment
from msa.io.fasta import FastaRecord

DIALECTS = ("alphafold3", "alphafoldserver")
_JOB_KEYS = (
    "name", "modelSeeds", "sequences", "bondedAtomPairs", "userCCD", "userCCDPath", "dialect", "version",
)  # fmt: skip
_PROTEINS = ("protein", "proteinChain")
_OTHERS = {
    "rna": "RNA", "rnaSequence": "RNA", "dna": "DNA", "dnaSequence": "DNA",
    "ligand": "a ligand", "ion": "an ion",
}  # fmt: skip
# a pairing says nothing of one chain, and templates are searched for by no step here
_PROTEIN_KEYS = (
    "id", "sequence", "modifications", "description", "unpairedMsa", "unpairedMsaPath", "pairedMsa",
    "pairedMsaPath", "templates", "count", "glycans", "useStructureTemplate", "maxTemplateDate",
)  # fmt: skip


def parse_alphafold3(data: bytes, path: str) -> list[FastaRecord]:
    """The jobs of a file: one mapping, or, as the server has it, a list of them.

    Seeds are not taken from it, and neither are paired alignments, which mean nothing to one chain.

    Args:
        data: decompressed JSON.
        path: what errors call it.

    Returns:
        A record a job, an AlignedRecord where it brings an alignment, an UnsupportedRecord where it is not
        one protein chain.

    Raises:
        InputError: not such a file; names the line.
    """
    content = parse_json(data, path)
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise InputError("no job in the list", path, 1)
    return [_job(mapping_of(job, "a job", path, 1), path).record() for job in jobs]


def _job(content: Located, path: str) -> Job:
    dialect = content.get("dialect")
    if dialect is not None and dialect not in DIALECTS:
        reason = f"dialect {dialect!r} is not known: {' or '.join(DIALECTS)}"
        raise InputError(reason, path, content.line_of("dialect"))
    known_keys(content, _JOB_KEYS, path)
    job = Job(text_of(content, "name", path), path, content.line)
    for kind, entity in entities_of(content, path):
        if kind in _PROTEINS:
            _add_protein(job, entity)
        elif kind in _OTHERS:
            job.note(_OTHERS[kind])
        else:
            raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    if content.get("bondedAtomPairs"):
        job.note("bonds (bondedAtomPairs)")
    return job


def _add_protein(job: Job, entity: Located) -> None:
    known_keys(entity, _PROTEIN_KEYS, job.path)
    job.add_chains(entity, _copies(entity, job.path))
    for key, what in (
        ("modifications", "modified residues"),
        ("glycans", "glycans"),
        ("templates", "templates of its own"),
    ):
        if entity.get(key):
            job.note(what)
    job.alignment = _alignment(job, entity)


def _copies(entity: Located, path: str) -> int:
    """How often the chain occurs: the server counts, the program lists ids."""
    identifiers: Any = entity.get("id")
    if isinstance(identifiers, list):
        return len(identifiers)
    count = entity.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"count is {count!r}: expected a number from 1", path, entity.line_of("count"))
    return count


def _alignment(job: Job, entity: Located) -> Alignment | None:
    """The alignment that the job brings; an empty one asks for a prediction without any."""
    for key in ("unpairedMsa", "unpairedMsaPath"):
        value = entity.get(key)
        if value is None:
            continue
        line = entity.line_of(key)
        if not isinstance(value, str):
            raise InputError(f"{key!r} is not text", job.path, line)
        if not value.strip():
            job.note(f"an empty {key}, which asks for no alignment (`foldcli predict` does that)")
        elif key == "unpairedMsaPath":
            return alignment_beside(job.path, value, line)
        else:
            try:
                return parse_alignment(value.encode())
            except InputError as error:
                raise InputError(f"{key}: {error.reason}", job.path, line) from None
    return None
