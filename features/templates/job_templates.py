"""Templates that a job gives to its chains: structures with the pairs of residues that it lists."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from features.assembly.job import JobTemplate
from features.chemistry.residues import CB
from features.templates.backbone_geometry import place_beta
from features.templates.candidates import TemplateCandidate, TemplateHits
from features.templates.library.chains import TemplateChain
from features.templates.library.structure_files import read_chains
from msa.base.errors import InputError
from msa.base.residues import ATOM_ORDER
from msa.io.structures import read_structure

_FRAME = [ATOM_ORDER[name] for name in ("N", "CA", "C")]
_GAP_PENALTY = (-11, -1)
_LETTERS = frozenset("ACDEFGHIKLMNPQRSTVWY")


def read_template_file(file: Path, chain: str | None, sequence: str, path: str, line: int) -> JobTemplate:
    """Return the template of a protein from a structure file, mmCIF or PDB.

    Residues are paired by a local alignment of the sequences (BLOSUM62, gap costs 11 and 1).

    Args:
        file: the structure file.
        chain: id of the template's chain; None for the one whose alignment scores best.
        sequence: sequence of the protein.
        path: the job file, for errors.
        line: its line, for errors.

    Raises:
        InputError: the file is not a structure, or has no such chain.
    """
    chains = read_chains(file, entry="template")
    if chain is not None:
        named = [each for each in chains if each.id == f"template_{chain}"]
        if not named:
            present = ", ".join(each.id.removeprefix("template_") for each in chains)
            raise InputError(
                f"template {file.name:.100} has no protein chain {chain!r}, only {present}", path, line
            )
        chains = named
    aligned = [(_align(sequence, each), each) for each in chains]
    (_, query, template), best = max(aligned, key=lambda item: item[0][0])
    if not query:
        raise InputError(f"template {file.name:.100} has no residue that aligns to the sequence", path, line)
    structure = read_structure(file).structure
    structure.assign_label_seq_id()
    text = structure.make_mmcif_document().as_string()
    return JobTemplate(text, query, template, best.id.removeprefix("template_"), path, line)


def _align(sequence: str, chain: TemplateChain) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the score of the best local alignment, and the positions of its pairs from 0."""
    # takes a second, and is not needed by jobs without such templates
    from biotite.sequence import ProteinSequence, align

    first, second = (
        ProteinSequence("".join(letter if letter in _LETTERS else "X" for letter in text))
        for text in (sequence, chain.sequence)
    )
    matrix = align.SubstitutionMatrix.std_protein_matrix()
    alignment = align.align_optimal(first, second, matrix, _GAP_PENALTY, local=True, max_number=1)[0]
    pairs = alignment.trace[(alignment.trace >= 0).all(1)]
    return int(alignment.score), tuple(pairs[:, 0].tolist()), tuple(pairs[:, 1].tolist())


def read_job_template(template: JobTemplate, number: int, chain: str) -> TemplateChain:
    """Return the structure of the template with this number of a chain.

    Raises:
        InputError: its text is no structure with such a protein chain, or a listed position is not in it;
            names the place of the template in the job file.
    """
    try:
        return _read_chain(template)
    except InputError as error:
        reason = f"template {number} of chain {chain}: {error.reason}"
        raise InputError(reason, template.path, template.line) from None


# many targets of a run may have the same templates
@lru_cache(maxsize=32)
def _read_chain(template: JobTemplate) -> TemplateChain:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "template.cif")
        path.write_text(template.text, encoding="utf-8")
        chains = read_chains(path, entry="template")
    if template.chain is None and len(chains) > 1:
        raise InputError(f"{len(chains)} protein chains instead of one")
    for chain in chains:
        if template.chain is None or chain.id == f"template_{template.chain}":
            if max(template.template_positions, default=-1) >= len(chain.sequence):
                last = len(chain.sequence) - 1
                raise InputError(f"a position of its chain is beyond the last residue, {last:,}")
            return chain
    raise InputError(f"no protein chain {template.chain!r}")


def job_template_hits(
    sequence: str, templates: Sequence[JobTemplate], chain: str, count: int
) -> tuple[TemplateHits, tuple[tuple[str, str], ...]]:
    """Return the templates of a chain as hits of a search, and names and reasons of those that are not used.

    A residue of unknown type, whose template hides its sequence, gets a CB if its backbone is complete.

    Args:
        sequence: residues of the chain.
        templates: its templates, the first of which are used.
        chain: name of the chain.
        count: largest number of templates.
    """
    candidates: list[TemplateCandidate] = []
    chains, unusable = [], []
    for number, template in enumerate(templates, 1):
        found = read_job_template(template, number, chain)
        found = replace(_with_beta(found), id=f"{number}_{found.id.removeprefix('template_')}")
        # of several positions for one residue, the last counts, as in AlphaFold 3
        listed = dict(zip(template.query_positions, template.template_positions, strict=True))
        pairs = np.array(sorted(listed.items()), np.int64).reshape(-1, 2)
        if not found.mask[pairs[:, 1]].any():
            unusable.append((found.id, "no listed residue has coordinates"))
        elif len(candidates) == count:
            unusable.append((found.id, f"the network takes {count} templates of a chain"))
        else:
            candidates.append(_candidate(sequence, pairs, found, template, number))
            chains.append(found)
    return TemplateHits(sequence, candidates, chains), tuple(unusable)


def _candidate(
    sequence: str, pairs: np.ndarray, chain: TemplateChain, template: JobTemplate, number: int
) -> TemplateCandidate:
    (query_start, template_start), (query_end, template_end) = pairs.min(0) + 1, pairs.max(0) + 1
    identical = sum(sequence[i] == chain.sequence[j] for i, j in pairs.tolist())
    return TemplateCandidate(
        number - 1,
        chain.id,
        f"{Path(template.path or 'job').name}:{template.line or 1}",
        chain.release_date,
        None,
        identical / len(pairs),
        int(query_start),
        int(query_end),
        int(template_start),
        int(template_end),
        pairs,
        len(pairs) / len(sequence),
    )


def _with_beta(chain: TemplateChain) -> TemplateChain:
    """Return a chain with a CB on each complete backbone of unknown type that lacks it."""
    unknown = np.array([letter == "X" for letter in chain.sequence])
    missing = unknown & chain.mask[:, _FRAME].all(1) & ~chain.mask[:, CB]
    if not missing.any():
        return chain
    positions, mask = chain.positions.copy(), chain.mask.copy()
    positions[missing, CB] = place_beta(*positions[missing][:, _FRAME].swapaxes(0, 1))
    mask[missing, CB] = True
    return replace(chain, positions=positions, mask=mask)
