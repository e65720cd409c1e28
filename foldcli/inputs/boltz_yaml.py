"""Boltz's input files, as far as one protein chain goes."""

from foldcli.inputs.jobs import Job, alignment_beside, entities_of, known_keys, mapping_of, text_of
from foldcli.inputs.json_with_lines import Located, parse_yaml
from msa.errors import InputError
from msa.io.fasta import FastaRecord

_OTHERS = {"rna": "RNA", "dna": "DNA", "ligand": "a ligand"}
# what of the whole job is not supported, where it is not empty
_PARTS = {"constraints": "constraints", "templates": "templates of its own", "properties": "properties"}
_PROTEIN_KEYS = ("id", "sequence", "msa", "modifications", "cyclic")
_TRUE = ("true", "True", "TRUE", "yes", "on")


def parse_boltz(data: bytes, path: str, name: str) -> list[FastaRecord]:
    """The one job of a file.

    Args:
        data: decompressed YAML.
        path: what errors call it.
        name: of the query; the file has none.

    Returns:
        One record: an AlignedRecord where it names an alignment, an UnsupportedRecord where it is not one
        protein chain.

    Raises:
        InputError: not such a file, or the alignment cannot be read; names the line.
    """
    content = mapping_of(parse_yaml(data, path), "the file", path, 1)
    known_keys(content, ("version", "sequences", *_PARTS), path)
    job = Job(name, path, content.line)
    for kind, entity in entities_of(content, path):
        if kind == "protein":
            _add_protein(job, entity)
        elif kind in _OTHERS:
            job.note(_OTHERS[kind])
        else:
            raise InputError(f"unknown kind of chain {kind!r}", path, entity.line)
    for key, what in _PARTS.items():
        if content.get(key):
            job.note(what)
    return [job.record()]


def _add_protein(job: Job, entity: Located) -> None:
    known_keys(entity, _PROTEIN_KEYS, job.path)
    identifiers = entity.get("id")
    job.add_chains(entity, len(identifiers) if isinstance(identifiers, list) else 1)
    if entity.get("modifications"):
        job.note("modified residues")
    if entity.get("cyclic", "false") in _TRUE:
        job.note("a cyclic chain")
    if "msa" not in entity:
        return
    named, line = text_of(entity, "msa", job.path), entity.line_of("msa")
    if named in ("empty", "0"):
        job.note(f"msa: {named}, which asks for no alignment (`foldcli predict` does that)")
    elif named.lower().endswith(".csv"):
        job.note("an alignment in a table (.csv), where A3M would be read")
    else:
        job.alignment = alignment_beside(job.path, named, line)
