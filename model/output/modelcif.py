"""The origin and the scores of predictions of any molecules, as ModelCIF describes them.

Pairwise scores, which need N² rows, are a file of their own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import gemmi
import numpy as np

from model.output.provenance import Provenance
from model.prediction import Prediction
from model.structure import EntityKind, Structure

# a value of a category; None is unknown (?), False does not apply (.)
Cell = str | int | None | bool
_IDENTITY_DENOMINATOR = "Number of aligned residue pairs (not including the gaps)"


@dataclass(frozen=True)
class UsedTemplate:
    """A template of a chain.

    Args:
        chain: name of the target's chain.
        entry: PDB code, or None for a structure that the user gave.
        template_chain: chain of the template.
        description: a line for people.
        sequences: the sequences of chain and template; None if the alignment is not known.
        pairs: aligned residues of chain and template, from 0, ascending.
        identity: share of identical pairs.
    """

    chain: str
    entry: str | None
    template_chain: str
    description: str
    sequences: tuple[str, str] | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    identity: float = 0.0

    def aligned_rows(self) -> tuple[str, str]:
        """Return the aligned parts of chain and template, with gaps."""
        assert self.sequences is not None
        query, template = self.sequences
        rows: tuple[list[str], list[str]] = ([], [])
        last = (self.pairs[0][0] - 1, self.pairs[0][1] - 1)
        for i, j in self.pairs:
            skipped = query[last[0] + 1 : i], template[last[1] + 1 : j]
            rows[0].append(skipped[0] + "-" * len(skipped[1]) + query[i])
            rows[1].append("-" * len(skipped[0]) + skipped[1] + template[j])
            last = (i, j)
        return "".join(rows[0]), "".join(rows[1])


def entity_type(kind: EntityKind) -> str:
    """Return the type of an entity in mmCIF."""
    if kind.is_polymer:
        return "polymer"
    return "branched" if kind == EntityKind.BRANCHED else "non-polymer"


def add_protocol(
    block: gemmi.cif.Block, provenance: Provenance, structure: Structure, templates: Sequence[UsedTemplate]
) -> None:
    """Add the data, software and steps by which the model was made."""
    description = provenance.description
    program, _, version = provenance.program.partition(" ")
    software = (1, program, version or None, "model building", description, "program")
    add(block, "_software", "pdbx_ordinal name version classification description type", [software])
    add(block, "_ma_software_group", "ordinal_id group_id software_id", [(1, 1, 1)])
    data = [("model", "model coordinates")]
    data += [(entity.description, "target") for entity in structure.entities]
    first_template = len(data) + 1
    data += [(template.description, "template structure") for template in templates]
    aligned = [
        number for number, template in enumerate(templates, 1) if template.sequences and template.pairs
    ]
    first_alignment = len(data) + 1
    data += [(f"alignment with template {number}", "target-template alignment") for number in aligned]
    numbered = [(number, *row, None) for number, row in enumerate(data, 1)]
    add(block, "_ma_data", "id name content_type content_type_other_details", numbered)
    groups = [*((1, number) for number, *_ in numbered[1:]), (2, 1)]
    rows = [(ordinal, *row) for ordinal, row in enumerate(groups, 1)]
    add(block, "_ma_data_group", "ordinal_id group_id data_id", rows)
    targets = [(number, number + 1, "designed") for number in range(1, len(structure.entities) + 1)]
    add(block, "_ma_target_entity", "entity_id data_id origin", targets)
    columns = "ordinal_id protocol_id step_id method_type step_name details software_group_id"
    is_copy = provenance.copied_from is not None
    name = "copy of the template" if is_copy else "prediction of the structure"
    step = (1, 1, 1, "modeling", name, description, 1, 1, 2)
    add(block, "_ma_protocol_step", f"{columns} input_data_group_id output_data_group_id", [step])
    kind = "Homology model" if is_copy else "Ab initio model"
    model = (1, provenance.title, 1, kind, None)
    columns = "ordinal_id model_name data_id model_type model_type_other_details"
    add(block, "_ma_model_list", columns, [model])
    add(block, "_ma_model_group", "id name details", [(1, "models", None)])
    add(block, "_ma_model_group_link", "group_id model_id", [(1, 1)])
    _add_templates(block, templates, first_template)
    _add_alignments(block, [(number, templates[number - 1]) for number in aligned], first_alignment)


def _add_templates(block: gemmi.cif.Block, templates: Sequence[UsedTemplate], first_data: int) -> None:
    if not templates:
        return
    matrix = {f"rot_matrix[{i}][{j}]": str(float(i == j)) for i in (1, 2, 3) for j in (1, 2, 3)}
    matrix |= {f"tr_vector[{i}]": "0.0" for i in (1, 2, 3)}
    add(block, "_ma_template_trans_matrix", " ".join(["id", *matrix]), [("1", *matrix.values())])
    rows: list[Sequence[Cell]] = []
    for number, item in enumerate(templates, 1):
        origin = "customized" if item.entry is None else "reference database"
        chains = item.chain, item.template_chain, None, 1, item.template_chain
        rows.append((number, number, origin, "polymer", 1, first_data + number - 1, *chains))
    columns = (
        "ordinal_id template_id template_origin template_entity_type template_trans_matrix_id "
        "template_data_id target_asym_id template_label_asym_id template_label_entity_id "
        "template_model_num template_auth_asym_id"
    )
    add(block, "_ma_template_details", columns, rows)
    numbered = list(enumerate(templates, 1))
    entries = [(number, "PDB", False, item.entry.upper(), False) for number, item in numbered if item.entry]
    columns = "template_id db_name db_name_other_details db_accession_code db_version_date"
    add(block, "_ma_template_ref_db_details", columns, entries)
    given = [(number, item.description) for number, item in numbered if item.entry is None]
    add(block, "_ma_template_customized", "template_id details", given)


def _add_alignments(
    block: gemmi.cif.Block, templates: Sequence[tuple[int, UsedTemplate]], first_data: int
) -> None:
    """Add the alignments of numbered templates whose sequences are known."""
    tables: list[list[Sequence[Cell]]] = [[] for _ in range(6)]
    polymers, segments, mapping, infos, details, rows = tables
    for index, (number, template) in enumerate(templates, 1):
        assert template.sequences is not None
        query, aligned = template.aligned_rows()
        polymers.append((number, template.sequences[1], template.sequences[1]))
        segments.append((index, number, template.pairs[0][1] + 1, template.pairs[-1][1] + 1))
        mapping.append((index, index, template.chain, template.pairs[0][0] + 1, template.pairs[-1][0] + 1))
        kinds = "target-template pairwise alignment", "local"
        infos.append((index, first_data + index - 1, 1, len(query), *kinds))
        identity = f"{100 * template.identity:.1f}", _IDENTITY_DENOMINATOR
        details.append((index, index, index, template.chain, None, None, *identity))
        rows += [(2 * index - 1, index, 1, query), (2 * index, index, 2, aligned)]
    add(block, "_ma_template_poly", "template_id seq_one_letter_code seq_one_letter_code_can", polymers)
    columns = "id template_id residue_number_begin residue_number_end"
    add(block, "_ma_template_poly_segment", columns, segments)
    columns = "id template_segment_id target_asym_id target_seq_id_begin target_seq_id_end"
    add(block, "_ma_target_template_poly_mapping", columns, mapping)
    columns = "alignment_id data_id software_group_id alignment_length alignment_type alignment_mode"
    add(block, "_ma_alignment_info", columns, infos)
    columns = "score_type score_value percent_sequence_identity sequence_identity_denominator"
    ids = "ordinal_id alignment_id template_segment_id target_asym_id"
    add(block, "_ma_alignment_details", f"{ids} {columns}", details)
    add(block, "_ma_alignment", "ordinal_id alignment_id target_template_flag sequence", rows)


def add_scores(block: gemmi.cif.Block, prediction: Prediction, provenance: Provenance) -> None:
    """Add the scores of the model, and pLDDT of its residues."""
    structure, scores = prediction.structure, prediction.all_atom
    assert scores is not None and prediction.ranking_score is not None
    note = provenance.with_warning("Predicted lDDT of atoms, 0 to 100")
    metrics: list[tuple[Cell, ...]] = [
        (1, "pLDDT", "pLDDT all-atom", "global", note, None),
        (2, "pLDDT", "pLDDT", "local", f"{note}; mean of a residue's atoms", None),
        (3, "pTM", "pTM", "global", "Predicted TM-score", None),
        (6, "ranking score", "other", "global", "Score by which samples are ranked", "ranking score"),
    ]
    overall = [(1, f"{prediction.mean_plddt:.2f}"), (3, f"{prediction.ptm:.4f}")]
    overall.append((6, f"{prediction.ranking_score:.4f}"))
    if scores.iptm is not None:
        metrics.append((7, "ipTM", "ipTM", "global", "Predicted TM-score of the interfaces", None))
        overall.append((7, f"{scores.iptm:.4f}"))
    add(block, "_ma_qa_metric", "id name type mode description type_other_details", metrics)
    means = structure.residue_means(prediction.b_factors)
    local: list[tuple[Cell, ...]] = []
    for residue, chain in enumerate(structure.residue_chain):
        if np.isfinite(means[residue]):
            number = int(structure.residue_number[residue]) if structure.chain_is_polymer[chain] else False
            code = str(structure.residue_code[residue])
            local.append(
                (residue + 1, 1, structure.chain_names[chain], number, code, 2, f"{means[residue]:.2f}")
            )
    add_metric_values(block, overall, local)


def add_metric_values(
    block: gemmi.cif.Block, overall: Sequence[tuple[Cell, ...]], local: Sequence[tuple[Cell, ...]]
) -> None:
    """Add the values of the metrics in `_ma_qa_metric`."""
    rows = [(ordinal, 1, *row) for ordinal, row in enumerate(overall, 1)]
    add(block, "_ma_qa_metric_global", "ordinal_id model_id metric_id metric_value", rows)
    residue = "label_asym_id label_seq_id label_comp_id"
    add(block, "_ma_qa_metric_local", f"ordinal_id model_id {residue} metric_id metric_value", local)


def format_pairwise_scores(prediction: Prediction, provenance: Provenance) -> str:
    """Format PAE and PDE of all pairs of tokens as the file that ModelCIF wants beside the structure.

    Raises:
        ValueError: the network predicts no PAE.
    """
    structure, pae = prediction.structure, prediction.pae
    if pae is None:
        raise ValueError("a network without a PAE head")
    pde = None if prediction.all_atom is None else prediction.all_atom.pde
    document = new_document(f"{provenance.name}_pairwise", provenance.name)
    block = document.sole_block()
    metrics = [
        (4, "PAE", "PAE", "per-feature-pair", "Predicted aligned error in Å"),
        (5, "PDE", "distance", "per-feature-pair", "Predicted error of the distance in Å"),
    ][: 1 if pde is None else 2]
    add(block, "_ma_qa_metric", "id name type mode description", metrics)
    features: list[Sequence[Cell]] = []
    residues: list[Sequence[Cell]] = []
    atoms: list[Sequence[Cell]] = []
    for index, (chain, residue, is_atom) in enumerate(
        zip(structure.token_chain, structure.token_residue, structure.token_is_atom, strict=True)
    ):
        kind = entity_type(structure.kind(chain))
        features.append((index + 1, "atom" if is_atom else "residue", kind, None))
        if is_atom:
            atoms.append((len(atoms) + 1, index + 1, int(structure.token_start[index]) + 1))
        else:
            number, code = int(structure.residue_number[residue]), str(structure.residue_code[residue])
            residues.append((len(residues) + 1, index + 1, structure.chain_names[chain], number, code))
    add(block, "_ma_feature_list", "feature_id feature_type entity_type details", features)
    label = "label_asym_id label_seq_id label_comp_id"
    add(block, "_ma_poly_residue_feature", f"ordinal_id feature_id {label}", residues)
    add(block, "_ma_atom_feature", "ordinal_id feature_id atom_id", atoms)
    return str(document.as_string()) + _pair_rows([(4, pae), *([] if pde is None else [(5, pde)])])


def _pair_rows(metrics: Sequence[tuple[int, np.ndarray]]) -> str:
    """Return the loop of the values [N, N] of all pairs of tokens, given the metrics' numbers."""
    columns = ("ordinal_id", "model_id", "feature_id_1", "feature_id_2", "metric_id", "metric_value")
    lines = ["", "loop_", *(f"_ma_qa_metric_feature_pairwise.{column}" for column in columns)]
    ordinal = 1
    for metric, values in metrics:
        for first, row in enumerate(values.tolist(), 1):
            lines += [
                f"{ordinal + second} 1 {first} {second + 1} {metric} {value:.2f}"
                for second, value in enumerate(row)
            ]
            ordinal += len(values)
    return "\n".join([*lines, ""])


def new_document(block_name: str, entry: str) -> gemmi.cif.Document:
    """Return a document with one block; characters that end a block's name are replaced."""
    document = gemmi.cif.Document()
    printable = (letter if letter.isprintable() and letter != " " else "_" for letter in block_name)
    add(document.add_new_block("".join(printable)), "_entry", "id", [(entry,)])
    return document


def add(block: gemmi.cif.Block, category: str, columns: str, rows: Iterable[Sequence[Cell]]) -> None:
    """Add a category unless it has no rows, given the names of its columns, separated by spaces."""
    table = [[cell if cell is None or cell is False else str(cell) for cell in row] for row in rows]
    if table:
        values = map(list, zip(*table, strict=True))
        block.set_mmcif_category(category, dict(zip(columns.split(), values, strict=True)))
