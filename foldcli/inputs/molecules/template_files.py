"""Templates that a job names as structure files, laid over the sequence by an alignment."""

import gemmi

from features.assembly.job import OwnTemplate
from features.templates.library.chains import TemplateChain
from features.templates.library.structure_files import read_chains
from foldcli.inputs.job_files import find_named_file
from msa.base.errors import InputError
from msa.io.structures import read_structure

_GAP_PENALTY = (-11, -1)
_LETTERS = frozenset("ACDEFGHIKLMNPQRSTVWY")


def template_of_file(path: str, name: str, chain: str | None, sequence: str, line: int) -> OwnTemplate:
    """Return the template of a protein from a structure file, mmCIF or PDB.

    Residues are paired by a local alignment of the sequences (BLOSUM62, gap costs 11 and 1).

    Args:
        path: the job file.
        name: name of the structure file in it.
        chain: id of the template's chain; None for the one whose alignment scores best.
        sequence: sequence of the protein.
        line: line for errors.

    Raises:
        InputError: the file is missing or not a structure, or has no such chain.
    """
    file = find_named_file(path, name, "template file", line)
    chains = read_chains(file, entry="template")
    if chain is not None:
        named = [each for each in chains if each.id == f"template_{chain}"]
        if not named:
            present = ", ".join(each.id.removeprefix("template_") for each in chains)
            raise InputError(
                f"template {name:.100} has no protein chain {chain!r}, only {present}", path, line
            )
        chains = named
    aligned = [(_align(sequence, each), each) for each in chains]
    (_, query, template), best = max(aligned, key=lambda item: item[0][0])
    if not query:
        raise InputError(f"template {name:.100} has no residue that aligns to the sequence", path, line)
    structure = read_structure(file).structure
    return OwnTemplate(_mmcif(structure), query, template, best.id.removeprefix("template_"))


def _align(sequence: str, chain: TemplateChain) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the score of the best local alignment, and the positions of its pairs from 0."""
    # takes a second, and is not needed by jobs without such templates
    from biotite.sequence import ProteinSequence
    from biotite.sequence.align import SubstitutionMatrix, align_optimal

    first, second = (
        ProteinSequence("".join(letter if letter in _LETTERS else "X" for letter in text))
        for text in (sequence, chain.sequence)
    )
    matrix = SubstitutionMatrix.std_protein_matrix()
    alignment = align_optimal(first, second, matrix, _GAP_PENALTY, local=True, max_number=1)[0]
    pairs = alignment.trace[(alignment.trace >= 0).all(1)]
    return int(alignment.score), tuple(pairs[:, 0].tolist()), tuple(pairs[:, 1].tolist())


def _mmcif(structure: gemmi.Structure) -> str:
    """Return a structure as mmCIF text."""
    structure.assign_label_seq_id()
    return structure.make_mmcif_document().as_string()
