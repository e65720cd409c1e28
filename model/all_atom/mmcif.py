"""Predictions of any molecules as mmCIF with the categories of ModelCIF.

Atoms have their own pLDDT in their B-factors. Pairwise scores, which need N² rows, are a file of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import gemmi
import numpy as np

from model.output import Provenance
from model.structure import AllAtomPrediction, Chain, Entity, EntityKind, Structure

# columns of a category; None is unknown (?), False does not apply (.)
Cell = str | int | None | bool
_POLYMER_TYPES = {
    EntityKind.PROTEIN: "polypeptide(L)",
    EntityKind.RNA: "polyribonucleotide",
    EntityKind.DNA: "polydeoxyribonucleotide",
}
_BOND_ORDERS = {1: "sing", 2: "doub", 3: "trip", 4: "quad"}


@dataclass(frozen=True)
class UsedTemplate:
    """A template of a chain.

    Args:
        chain: name of the target's chain.
        entry: PDB code, or None for a structure that the user gave.
        template_chain: chain of the template.
        description: a line for people.
    """

    chain: str
    entry: str | None
    template_chain: str
    description: str


def format_all_atom_mmcif(
    prediction: AllAtomPrediction,
    provenance: Provenance,
    templates: Sequence[UsedTemplate] = (),
    pairwise_file: str | None = None,
) -> str:
    """Format a prediction as mmCIF.

    Args:
        prediction: the prediction.
        provenance: its origin.
        templates: templates of the network's input.
        pairwise_file: name of the file of `format_pairwise_scores`, if it is written next to this one.

    Raises:
        ValueError: a coordinate is not finite.
    """
    if not np.isfinite(prediction.positions).all():
        raise ValueError("coordinates are not finite")
    document = gemmi.cif.Document()
    block = document.add_new_block(_block_name(provenance.name))
    block.set_mmcif_category("_entry", {"id": [provenance.name]})
    structure = prediction.structure
    _add_header(block, provenance)
    _add_components(block, structure)
    _add_entities(block, structure)
    _add_chains(block, structure)
    _add_links(block, structure)
    _add_protocol(block, provenance, structure, templates, pairwise_file)
    _add_scores(block, prediction, provenance)
    _add_atoms(block, prediction)
    return str(document.as_string())


def format_pairwise_scores(prediction: AllAtomPrediction, provenance: Provenance) -> str:
    """Format PAE and PDE of all pairs of tokens as the file that ModelCIF wants beside the structure."""
    structure = prediction.structure
    document = gemmi.cif.Document()
    block = document.add_new_block(_block_name(f"{provenance.name}_pairwise"))
    block.set_mmcif_category("_entry", {"id": [provenance.name]})
    _set(
        block,
        "_ma_qa_metric",
        ("id", "name", "type", "mode", "description"),
        [
            (4, "PAE", "PAE", "per-feature-pair", "Predicted aligned error in Å"),
            (5, "PDE", "distance", "per-feature-pair", "Predicted error of the distance in Å"),
        ],
    )
    is_residue = ~structure.token_is_atom
    _set(
        block,
        "_ma_feature_list",
        ("feature_id", "feature_type", "entity_type", "details"),
        [
            (token + 1, "residue" if is_residue[token] else "atom", _entity_type(structure.kind(chain)), None)
            for token, chain in enumerate(structure.token_chain)
        ],
    )
    _set(
        block,
        "_ma_poly_residue_feature",
        ("ordinal_id", "feature_id", "label_asym_id", "label_seq_id", "label_comp_id"),
        [
            (
                ordinal,
                int(token) + 1,
                structure.chain_names[structure.token_chain[token]],
                int(structure.residue_number[structure.token_residue[token]]),
                str(structure.residue_code[structure.token_residue[token]]),
            )
            for ordinal, token in enumerate(np.flatnonzero(is_residue), 1)
        ],
    )
    _set(
        block,
        "_ma_atom_feature",
        ("ordinal_id", "feature_id", "atom_id"),
        [
            (ordinal, int(token) + 1, int(structure.token_start[token]) + 1)
            for ordinal, token in enumerate(np.flatnonzero(structure.token_is_atom), 1)
        ],
    )
    return str(document.as_string()) + _pair_rows(prediction)


def _pair_rows(prediction: AllAtomPrediction) -> str:
    """Return the loop of the values of all pairs of tokens."""
    columns = ("ordinal_id", "model_id", "feature_id_1", "feature_id_2", "metric_id", "metric_value")
    lines = ["", "loop_", *(f"_ma_qa_metric_feature_pairwise.{column}" for column in columns)]
    count = len(prediction.pae)
    ordinal = 1
    for metric, values in ((4, prediction.pae), (5, prediction.pde)):
        for first, row in enumerate(values.tolist(), 1):
            lines += [
                f"{ordinal + second} 1 {first} {second + 1} {metric} {value:.2f}"
                for second, value in enumerate(row)
            ]
            ordinal += count
    return "\n".join([*lines, ""])


def _block_name(name: str) -> str:
    """Return a name without characters that end a block's name."""
    return "".join(character if character.isprintable() and character != " " else "_" for character in name)


def _set(
    block: gemmi.cif.Block, category: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> None:
    """Add a category unless it has no rows; None becomes "?" and False "."."""
    table = [[cell if cell is None or cell is False else str(cell) for cell in row] for row in rows]
    if table:
        block.set_mmcif_category(
            category, {column: [row[index] for row in table] for index, column in enumerate(columns)}
        )


def _add_header(block: gemmi.cif.Block, provenance: Provenance) -> None:
    conform = ("dict_name", "dict_version", "dict_location")
    location = "https://raw.githubusercontent.com/ihmwg/ModelCIF/master/dist/mmcif_ma.dic"
    _set(block, "_audit_conform", conform, [("mmcif_ma.dic", "1.4.7", location)])
    _set(block, "_struct", ("entry_id", "title"), [(provenance.name, provenance.title)])


def _add_components(block: gemmi.cif.Block, structure: Structure) -> None:
    """Add the components with their atoms and bonds, so that no reader has to guess them."""
    components = list(structure.components.values())
    _set(
        block,
        "_chem_comp",
        ("id", "type", "name", "formula", "ma_provenance"),
        [
            (
                item.code,
                item.type.lower() if item.type == "NON-POLYMER" else item.type,
                item.name or None,
                item.formula or None,
                "CCD Core" if item.in_dictionary else "CCD local",
            )
            for item in components
        ],
    )
    _set(
        block,
        "_chem_comp_atom",
        ("comp_id", "atom_id", "type_symbol", "charge", "pdbx_ordinal"),
        [
            (item.code, name, element, charge, ordinal)
            for item in components
            for ordinal, (name, element, charge) in enumerate(
                zip(item.names, item.elements, item.charges, strict=True), 1
            )
        ],
    )
    _set(
        block,
        "_chem_comp_bond",
        ("comp_id", "atom_id_1", "atom_id_2", "value_order", "pdbx_aromatic_flag", "pdbx_ordinal"),
        [
            (
                item.code,
                item.names[first],
                item.names[second],
                _BOND_ORDERS[order].upper(),
                "Y" if aromatic else "N",
                ordinal,
            )
            for item in components
            for ordinal, (first, second, order, aromatic) in enumerate(item.bonds, 1)
        ],
    )
    drawn = [(item.code, item.smiles) for item in components if item.smiles is not None]
    _set(
        block,
        "_ma_chem_comp_descriptor",
        ("ordinal_id", "chem_comp_id", "chem_comp_name", "type", "value", "details", "software_id"),
        [
            (ordinal, code, None, "Isomeric SMILES", smiles, "as given", None)
            for ordinal, (code, smiles) in enumerate(drawn, 1)
        ],
    )


def _entity_type(kind: EntityKind) -> str:
    """Return the type of an entity in mmCIF."""
    if kind.is_polymer:
        return "polymer"
    return "branched" if kind == EntityKind.BRANCHED else "non-polymer"


def _add_entities(block: gemmi.cif.Block, structure: Structure) -> None:
    copies = [
        [chain for chain in structure.chains if chain.entity == i] for i in range(len(structure.entities))
    ]
    types = [_entity_type(entity.kind) for entity in structure.entities]
    rows = list(zip(range(1, len(copies) + 1), structure.entities, copies, types, strict=True))
    _set(
        block,
        "_entity",
        ("id", "type", "src_method", "pdbx_description", "formula_weight", "pdbx_number_of_molecules"),
        [
            (number, kind, "man", entity.description, None, len(chains))
            for number, entity, chains, kind in rows
        ],
    )
    _add_polymers(
        block, [(number, entity, chains) for number, entity, chains, _ in rows if entity.kind.is_polymer]
    )
    _set(
        block,
        "_pdbx_entity_nonpoly",
        ("entity_id", "name", "comp_id"),
        [
            (number, entity.description, entity.codes[0])
            for number, entity, _, kind in rows
            if kind == "non-polymer"
        ],
    )
    _set(
        block,
        "_pdbx_entity_branch",
        ("entity_id", "type"),
        [(number, "oligosaccharide") for number, _, _, kind in rows if kind == "branched"],
    )
    _set(
        block,
        "_pdbx_entity_branch_list",
        ("entity_id", "num", "comp_id", "hetero"),
        [
            (number, position, code, "n")
            for number, entity, _, kind in rows
            if kind == "branched"
            for position, code in enumerate(entity.codes, 1)
        ],
    )


def _add_polymers(block: gemmi.cif.Block, polymers: Sequence[tuple[int, Entity, Sequence[Chain]]]) -> None:
    """Add the sequences of polymers, given the number, entity and chains of each."""
    _set(
        block,
        "_entity_poly",
        (
            "entity_id",
            "type",
            "nstd_linkage",
            "nstd_monomer",
            "pdbx_seq_one_letter_code",
            "pdbx_seq_one_letter_code_can",
            "pdbx_strand_id",
        ),
        [
            (
                number,
                _POLYMER_TYPES[entity.kind],
                "no",
                "yes" if _sequence_text(entity)[1] else "no",
                _sequence_text(entity)[0],
                entity.sequence,
                ",".join(chain.name for chain in chains),
            )
            for number, entity, chains in polymers
        ],
    )
    _set(
        block,
        "_entity_poly_seq",
        ("entity_id", "num", "mon_id", "hetero"),
        [
            (number, position, code, "n")
            for number, entity, _ in polymers
            for position, code in enumerate(entity.codes, 1)
        ],
    )


def _sequence_text(entity: Entity) -> tuple[str, bool]:
    """Return a sequence with the codes of modified residues, and all nucleotides of DNA, in brackets.

    Returns:
        The text, and whether a residue is modified.
    """
    letters, modified = [], False
    for code, letter in zip(entity.codes, entity.sequence, strict=True):
        is_standard = gemmi.find_tabulated_residue(code).is_standard()
        modified |= not is_standard
        letters.append(letter if is_standard and entity.kind != EntityKind.DNA else f"({code})")
    return "".join(letters), modified


def _add_chains(block: gemmi.cif.Block, structure: Structure) -> None:
    chains = structure.chains
    _set(
        block,
        "_struct_asym",
        ("id", "entity_id", "details", "pdbx_modified"),
        [(chain.name, chain.entity + 1, None, None) for chain in chains],
    )
    _set(
        block,
        "_ma_target_entity_instance",
        ("asym_id", "entity_id", "details"),
        [(chain.name, chain.entity + 1, None) for chain in chains],
    )
    residues = [
        (chains[chain], int(number), str(code), _entity_type(structure.kind(chain)))
        for chain, number, code in zip(
            structure.residue_chain, structure.residue_number, structure.residue_code, strict=True
        )
    ]
    scheme = ("asym_id", "entity_id", "mon_id", "pdb_strand_id", "pdb_mon_id", "pdb_seq_num", "auth_mon_id")
    _set(
        block,
        "_pdbx_poly_seq_scheme",
        (*scheme, "auth_seq_num", "seq_id", "pdb_ins_code", "hetero"),
        [(*_scheme_row(chain, number, code), number, False, "n") for chain, number, code, kind in residues
         if kind == "polymer"],
    )  # fmt: skip
    _set(
        block,
        "_pdbx_nonpoly_scheme",
        (*scheme, "auth_seq_num", "ndb_seq_num", "pdb_ins_code"),
        [
            (*_scheme_row(chain, number, code), number, False)
            for chain, number, code, kind in residues
            if kind == "non-polymer"
        ],
    )
    branched = ("asym_id", "entity_id", "mon_id", "pdb_asym_id", "pdb_mon_id", "pdb_seq_num", "auth_mon_id")
    _set(
        block,
        "_pdbx_branch_scheme",
        (*branched, "auth_seq_num", "num", "auth_asym_id", "hetero"),
        [
            (*_scheme_row(chain, number, code), number, chain.name, "n")
            for chain, number, code, kind in residues
            if kind == "branched"
        ],
    )


def _scheme_row(chain: Chain, number: int, code: str) -> tuple[Cell, ...]:
    return chain.name, chain.entity + 1, code, chain.name, code, number, code, number


def _add_links(block: gemmi.cif.Block, structure: Structure) -> None:
    """Add the bonds between residues that no sequence implies."""
    links = [tuple(map(int, bond)) for bond in structure.bonds[structure.is_link]]
    kinds = [_link_kind(structure, first, second) for first, second, _ in links]
    author = ("auth_asym_id", "auth_comp_id", "auth_seq_id")
    partner = ("label_asym_id", "label_comp_id", "label_seq_id", "label_atom_id", *author)
    _set(
        block,
        "_struct_conn",
        (
            "id",
            "conn_type_id",
            *(f"ptnr1_{item}" for item in partner),
            "ptnr1_symmetry",
            *(f"ptnr2_{item}" for item in partner),
            "ptnr2_symmetry",
            "pdbx_value_order",
        ),
        [
            (
                f"{kind}{number}",
                kind,
                *_partner(structure, first),
                "1_555",
                *_partner(structure, second),
                "1_555",
                _BOND_ORDERS[order],
            )
            for number, (kind, (first, second, order)) in enumerate(zip(kinds, links, strict=True), 1)
        ],
    )
    _set(block, "_struct_conn_type", ("id",), [(kind,) for kind in sorted(set(kinds))])
    _add_branch_links(block, structure, links)


def _add_branch_links(block: gemmi.cif.Block, structure: Structure, links: Sequence[tuple[int, ...]]) -> None:
    """Add the bonds between the residues of branched entities; copies of an entity have the same."""
    rows: dict[tuple[Cell, ...], None] = {}
    for first, second, order in links:
        chain = int(structure.atom_chain[first])
        if chain != structure.atom_chain[second] or structure.kind(chain) != EntityKind.BRANCHED:
            continue
        ends = tuple(cell for atom in (first, second) for cell in _branch_end(structure, atom))
        rows[structure.chains[chain].entity + 1, *ends, _BOND_ORDERS[order]] = None
    columns = tuple(
        f"{item}_{side}"
        for side in (1, 2)
        for item in ("entity_branch_list_num", "comp_id", "atom_id", "leaving_atom_id")
    )
    _set(
        block,
        "_pdbx_entity_branch_link",
        ("link_id", "entity_id", *columns, "value_order"),
        [(number, *row) for number, row in enumerate(rows, 1)],
    )


def _branch_end(structure: Structure, atom: int) -> tuple[Cell, ...]:
    """Return residue number, component, atom and the atom that left for the bond."""
    residue = int(structure.atom_residue[atom])
    component = structure.components[str(structure.residue_code[residue])]
    present = set(structure.atom_name[structure.atom_residue == residue].tolist())
    own = component.names.index(str(structure.atom_name[atom]))
    lost = [component.names[a + b - own] for a, b, *_ in component.bonds if own in (a, b)]
    leaving = next((name for name in lost if name not in present), None)
    return int(structure.residue_number[residue]), component.code, str(structure.atom_name[atom]), leaving


def _link_kind(structure: Structure, first: int, second: int) -> str:
    elements = {str(structure.atom_element[first]), str(structure.atom_element[second])}
    if structure.atom_is_metal[[first, second]].any():
        return "metalc"
    codes = {str(structure.residue_code[structure.atom_residue[atom]]) for atom in (first, second)}
    return "disulf" if elements == {"S"} and codes == {"CYS"} else "covale"


def _partner(structure: Structure, atom: int) -> tuple[Cell, ...]:
    residue = int(structure.atom_residue[atom])
    chain, code = (
        structure.chains[structure.residue_chain[residue]].name,
        str(structure.residue_code[residue]),
    )
    number = int(structure.residue_number[residue])
    label = number if structure.chain_is_polymer[structure.residue_chain[residue]] else False
    return chain, code, label, str(structure.atom_name[atom]), chain, code, number


def _add_protocol(
    block: gemmi.cif.Block,
    provenance: Provenance,
    structure: Structure,
    templates: Sequence[UsedTemplate],
    pairwise_file: str | None,
) -> None:
    """Add the data, software and steps by which the model was made."""
    description = f"{provenance.network}. {provenance.note}" if provenance.note else provenance.network
    program, _, version = provenance.program.partition(" ")
    software = ("pdbx_ordinal", "name", "version", "classification", "description", "type")
    _set(
        block,
        "_software",
        software,
        [(1, program, version or None, "model building", description, "program")],
    )
    _set(block, "_ma_software_group", ("ordinal_id", "group_id", "software_id"), [(1, 1, 1)])
    data = [(1, "model", "model coordinates", None)]
    data += [
        (number, entity.description, "target", None) for number, entity in enumerate(structure.entities, 2)
    ]
    first_template = len(data) + 1
    data += [
        (number, template.description, "template structure", None)
        for number, template in enumerate(templates, first_template)
    ]
    _set(block, "_ma_data", ("id", "name", "content_type", "content_type_other_details"), data)
    inputs = [number for number, *_ in data[1:]]
    groups = [(1, number) for number in inputs] + [(2, 1)]
    _set(
        block,
        "_ma_data_group",
        ("ordinal_id", "group_id", "data_id"),
        [(ordinal, *row) for ordinal, row in enumerate(groups, 1)],
    )
    _set(
        block,
        "_ma_target_entity",
        ("entity_id", "data_id", "origin"),
        [(number, number + 1, "designed") for number in range(1, len(structure.entities) + 1)],
    )
    _set(
        block,
        "_ma_protocol_step",
        (
            "ordinal_id",
            "protocol_id",
            "step_id",
            "method_type",
            "step_name",
            "details",
            "software_group_id",
            "input_data_group_id",
            "output_data_group_id",
        ),
        [(1, 1, 1, "modeling", "prediction of the structure", description, 1, 1, 2)],
    )
    model = ("ordinal_id", "model_name", "data_id", "model_type", "model_type_other_details")
    _set(block, "_ma_model_list", model, [(1, provenance.title, 1, "Ab initio model", None)])
    _set(block, "_ma_model_group", ("id", "name", "details"), [(1, "models", None)])
    _set(block, "_ma_model_group_link", ("group_id", "model_id"), [(1, 1)])
    _add_templates(block, structure, templates, first_template)
    if pairwise_file is not None:
        _add_pairwise_file(block, provenance, pairwise_file)


def _add_pairwise_file(block: gemmi.cif.Block, provenance: Provenance, pairwise_file: str) -> None:
    """Add the name of the file with the scores of pairs."""
    columns = (
        "id",
        "entry_id",
        "file_url",
        "file_type",
        "file_format",
        "file_content",
        "details",
        "data_id",
    )
    details = "PAE and PDE of all pairs of tokens"
    row = (1, provenance.name, pairwise_file, "file", "cif", "QA metrics", details, 1)
    _set(block, "_ma_entry_associated_files", columns, [row])


def _add_templates(
    block: gemmi.cif.Block, structure: Structure, templates: Sequence[UsedTemplate], first_data: int
) -> None:
    if not templates:
        return
    identity = {f"rot_matrix[{i}][{j}]": str(float(i == j)) for i in (1, 2, 3) for j in (1, 2, 3)}
    shift = {f"tr_vector[{i}]": "0.0" for i in (1, 2, 3)}
    matrix: Mapping[str, str] = {"id": "1"} | identity | shift
    _set(block, "_ma_template_trans_matrix", tuple(matrix), [tuple(matrix.values())])
    _set(
        block,
        "_ma_template_details",
        (
            "ordinal_id",
            "template_id",
            "template_origin",
            "template_entity_type",
            "template_trans_matrix_id",
            "template_data_id",
            "target_asym_id",
            "template_label_asym_id",
            "template_label_entity_id",
            "template_model_num",
            "template_auth_asym_id",
        ),
        [
            (
                number,
                number,
                "customized" if template.entry is None else "reference database",
                "polymer",
                1,
                first_data + number - 1,
                template.chain,
                template.template_chain,
                None,
                1,
                template.template_chain,
            )
            for number, template in enumerate(templates, 1)
        ],
    )
    numbered = list(enumerate(templates, 1))
    _set(
        block,
        "_ma_template_ref_db_details",
        ("template_id", "db_name", "db_name_other_details", "db_accession_code", "db_version_date"),
        [(number, "PDB", False, item.entry.upper(), False) for number, item in numbered if item.entry],
    )
    _set(
        block,
        "_ma_template_customized",
        ("template_id", "details"),
        [(number, item.description) for number, item in numbered if item.entry is None],
    )


def _add_scores(block: gemmi.cif.Block, prediction: AllAtomPrediction, provenance: Provenance) -> None:
    structure = prediction.structure
    note = "Predicted lDDT of atoms, 0 to 100"
    note = f"{note}. {provenance.warning}" if provenance.warning else note
    metrics: list[tuple[Cell, ...]] = [
        (1, "pLDDT", "pLDDT all-atom", "global", note, None),
        (2, "pLDDT", "pLDDT", "local", f"{note}; mean of a residue's atoms", None),
        (3, "pTM", "pTM", "global", "Predicted TM-score", None),
        (6, "ranking score", "other", "global", "Score by which samples are ranked", "ranking score"),
    ]
    overall: list[tuple[Cell, ...]] = [
        (1, f"{prediction.mean_plddt:.2f}"),
        (3, f"{prediction.ptm:.4f}"),
        (6, f"{prediction.ranking_score:.4f}"),
    ]
    if prediction.iptm is not None:
        metrics.append((7, "ipTM", "ipTM", "global", "Predicted TM-score of the interfaces", None))
        overall.append((7, f"{prediction.iptm:.4f}"))
    _set(block, "_ma_qa_metric", ("id", "name", "type", "mode", "description", "type_other_details"), metrics)
    _set(
        block,
        "_ma_qa_metric_global",
        ("ordinal_id", "model_id", "metric_id", "metric_value"),
        [(ordinal, 1, *row) for ordinal, row in enumerate(overall, 1)],
    )
    means = structure.residue_means(prediction.plddt)
    _set(
        block,
        "_ma_qa_metric_local",
        (
            "ordinal_id",
            "model_id",
            "label_asym_id",
            "label_seq_id",
            "label_comp_id",
            "metric_id",
            "metric_value",
        ),
        [
            (
                residue + 1,
                1,
                structure.chains[chain].name,
                int(structure.residue_number[residue]) if structure.chain_is_polymer[chain] else False,
                str(structure.residue_code[residue]),
                2,
                f"{means[residue]:.2f}",
            )
            for residue, chain in enumerate(structure.residue_chain)
            if np.isfinite(means[residue])
        ],
    )


def _add_atoms(block: gemmi.cif.Block, prediction: AllAtomPrediction) -> None:
    structure = prediction.structure
    residue, chain = structure.atom_residue, structure.atom_chain
    polymer = structure.chain_is_polymer[chain]
    standard = {code: gemmi.find_tabulated_residue(code).is_standard() for code in structure.components}
    codes = [str(code) for code in structure.residue_code[residue]]
    numbers = [str(number) for number in structure.residue_number[residue]]
    chain_of_atom = [structure.chain_names[index] for index in chain]
    names = [str(name) for name in structure.atom_name]
    # three decimals, so that PDB and mmCIF have the same numbers
    x, y, z = ([f"{value:.3f}" for value in column] for column in prediction.positions.T.tolist())
    count = len(names)
    block.set_mmcif_category(
        "_atom_site",
        {
            "group_PDB": [
                "ATOM" if is_polymer and standard[code] else "HETATM"
                for is_polymer, code in zip(polymer, codes, strict=True)
            ],
            "id": [str(index) for index in range(1, count + 1)],
            "type_symbol": [str(element).upper() for element in structure.atom_element],
            "label_atom_id": names,
            "label_alt_id": [False] * count,
            "label_comp_id": codes,
            "label_asym_id": chain_of_atom,
            "label_entity_id": [str(structure.chains[index].entity + 1) for index in chain],
            "label_seq_id": [
                number if is_polymer else False for number, is_polymer in zip(numbers, polymer, strict=True)
            ],
            "pdbx_PDB_ins_code": [None] * count,
            "Cartn_x": x,
            "Cartn_y": y,
            "Cartn_z": z,
            "occupancy": ["1.00"] * count,
            "B_iso_or_equiv": [f"{value:.2f}" for value in prediction.plddt.tolist()],
            "pdbx_formal_charge": [str(charge) if charge else None for charge in structure.atom_charge],
            "auth_seq_id": numbers,
            "auth_comp_id": codes,
            "auth_asym_id": chain_of_atom,
            "auth_atom_id": names,
            "pdbx_PDB_model_num": ["1"] * count,
        },
    )
    elements = sorted({str(element).upper() for element in structure.atom_element})
    _set(block, "_atom_type", ("symbol",), [(element,) for element in elements])
