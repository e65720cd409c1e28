"""Predictions of any molecules as mmCIF; atoms have their own pLDDT in their B-factors."""

from collections.abc import Sequence

import gemmi
import numpy as np

from model.output.modelcif import Cell, UsedTemplate, add, add_protocol, add_scores, entity_type, new_document
from model.output.provenance import Provenance
from model.prediction import Prediction
from model.structure import STANDARD_RESIDUES, Chain, Entity, EntityKind, Structure

_POLYMER_TYPES = {
    EntityKind.PROTEIN: "polypeptide(L)",
    EntityKind.RNA: "polyribonucleotide",
    EntityKind.DNA: "polydeoxyribonucleotide",
}
_BOND_ORDERS = {1: "sing", 2: "doub", 3: "trip", 4: "quad"}
_DICTIONARY = "https://raw.githubusercontent.com/ihmwg/ModelCIF/master/dist/mmcif_ma.dic"


def format_all_atom_mmcif(
    prediction: Prediction, provenance: Provenance, templates: Sequence[UsedTemplate] = ()
) -> str:
    """Format a prediction, with templates of the network's input, as mmCIF with the categories of ModelCIF.

    Raises:
        ValueError: a coordinate is not finite.
    """
    document = model_document(prediction, provenance, templates)
    add_scores(document.sole_block(), prediction, provenance)
    return str(document.as_string())


def model_document(
    prediction: Prediction, provenance: Provenance, templates: Sequence[UsedTemplate] = ()
) -> gemmi.cif.Document:
    """Return a structure with its origin in the categories of ModelCIF, without scores.

    Arguments are those of `format_all_atom_mmcif`.

    Raises:
        ValueError: a coordinate is not finite.
    """
    structure = prediction.structure
    if not np.isfinite(prediction.positions).all():
        raise ValueError("coordinates are not finite")
    document = new_document(provenance.name, provenance.name)
    block = document.sole_block()
    conform = [("mmcif_ma.dic", "1.4.7", _DICTIONARY)]
    add(block, "_audit_conform", "dict_name dict_version dict_location", conform)
    add(block, "_struct", "entry_id title", [(provenance.name, provenance.title)])
    _add_components(block, structure)
    _add_entities(block, structure)
    _add_chains(block, structure)
    _add_links(block, structure)
    add_protocol(block, provenance, structure, templates)
    _add_atoms(block, prediction)
    return document


def _add_components(block: gemmi.cif.Block, structure: Structure) -> None:
    """Add the components with their atoms and bonds, so that no reader has to guess them."""
    components = list(structure.components.values())
    rows: list[Sequence[Cell]] = []
    for item in components:
        kind = item.type.lower() if item.type == "NON-POLYMER" else item.type
        origin = "CCD Core" if item.in_dictionary else "CCD local"
        rows.append((item.code, kind, item.name or None, item.formula or None, origin))
    add(block, "_chem_comp", "id type name formula ma_provenance", rows)
    atoms = [
        (item.code, name, element.upper(), charge, ordinal)
        for item in components
        for ordinal, (name, element, charge) in enumerate(
            zip(item.names, item.elements, item.charges, strict=True), 1
        )
    ]
    add(block, "_chem_comp_atom", "comp_id atom_id type_symbol charge pdbx_ordinal", atoms)
    bonds = [
        (item.code, item.names[a], item.names[b], _BOND_ORDERS[order].upper(), "NY"[aromatic], ordinal)
        for item in components
        for ordinal, (a, b, order, aromatic) in enumerate(item.bonds, 1)
    ]
    columns = "comp_id atom_id_1 atom_id_2 value_order pdbx_aromatic_flag pdbx_ordinal"
    add(block, "_chem_comp_bond", columns, bonds)
    drawn = enumerate((item for item in components if item.smiles is not None), 1)
    smiles = [(n, x.code, None, "Isomeric SMILES", x.smiles, "as given", None) for n, x in drawn]
    columns = "ordinal_id chem_comp_id chem_comp_name type value details software_id"
    add(block, "_ma_chem_comp_descriptor", columns, smiles)


def _add_entities(block: gemmi.cif.Block, structure: Structure) -> None:
    numbered = list(enumerate(structure.entities, 1))
    names = [[chain.name for chain in structure.chains if chain.entity == n - 1] for n, _ in numbered]
    columns = "id type src_method pdbx_description formula_weight pdbx_number_of_molecules"
    entities = [(n, entity_type(x.kind), "man", x.description, None, len(names[n - 1])) for n, x in numbered]
    add(block, "_entity", columns, entities)
    polymers = [(n, entity) for n, entity in numbered if entity.kind.is_polymer]
    rows: list[Sequence[Cell]] = []
    for n, entity in polymers:
        letters = ["X" if y == "UNK" else x for x, y in zip(entity.sequence, entity.codes, strict=True)]
        text, modified = _sequence_text(entity.codes, letters, entity.kind)
        kind, strands = _POLYMER_TYPES[entity.kind], ",".join(names[n - 1])
        rows.append((n, kind, "no", "yes" if modified else "no", text, "".join(letters), strands))
    columns = "pdbx_seq_one_letter_code pdbx_seq_one_letter_code_can pdbx_strand_id"
    add(block, "_entity_poly", f"entity_id type nstd_linkage nstd_monomer {columns}", rows)
    add(block, "_entity_poly_seq", "entity_id num mon_id hetero", _residues_of(polymers))
    single = [(n, x.description, x.codes[0]) for n, x in numbered if entity_type(x.kind) == "non-polymer"]
    add(block, "_pdbx_entity_nonpoly", "entity_id name comp_id", single)
    branched = [(n, entity) for n, entity in numbered if entity.kind == EntityKind.BRANCHED]
    add(block, "_pdbx_entity_branch", "entity_id type", [(n, "oligosaccharide") for n, _ in branched])
    add(block, "_pdbx_entity_branch_list", "entity_id num comp_id hetero", _residues_of(branched))


def _residues_of(entities: Sequence[tuple[int, Entity]]) -> list[Sequence[Cell]]:
    """Return entity, number and component of each residue, and that it has no alternatives."""
    return [
        (n, position, code, "n") for n, entity in entities for position, code in enumerate(entity.codes, 1)
    ]


def _sequence_text(codes: Sequence[str], sequence: Sequence[str], kind: EntityKind) -> tuple[str, bool]:
    """Return a sequence with the codes of modified residues, and all nucleotides of DNA, in brackets.

    Returns:
        The text, and whether a residue is modified.
    """
    letters, modified = [], False
    for code, letter in zip(codes, sequence, strict=True):
        is_standard = code in STANDARD_RESIDUES
        modified |= not is_standard
        letters.append(letter if is_standard and kind != EntityKind.DNA else f"({code})")
    return "".join(letters), modified


def _add_chains(block: gemmi.cif.Block, structure: Structure) -> None:
    chains = structure.chains
    entities = [(chain.name, chain.entity + 1, None) for chain in chains]
    add(block, "_struct_asym", "id entity_id details pdbx_modified", [(*row, None) for row in entities])
    add(block, "_ma_target_entity_instance", "asym_id entity_id details", entities)
    rows: dict[str, list[tuple[Chain, int, tuple[Cell, ...]]]] = {}
    for index, number, code in zip(
        structure.residue_chain, structure.residue_number.tolist(), structure.residue_code, strict=True
    ):
        chain = chains[index]
        row = chain.name, chain.entity + 1, code, chain.name, code, number, code, number
        rows.setdefault(entity_type(structure.kind(index)), []).append((chain, number, row))
    scheme = "asym_id entity_id mon_id pdb_strand_id pdb_mon_id pdb_seq_num auth_mon_id auth_seq_num"
    polymers = [(*row, number, False, "n") for _, number, row in rows.get("polymer", [])]
    add(block, "_pdbx_poly_seq_scheme", f"{scheme} seq_id pdb_ins_code hetero", polymers)
    single = [(*row, number, False) for _, number, row in rows.get("non-polymer", [])]
    add(block, "_pdbx_nonpoly_scheme", f"{scheme} ndb_seq_num pdb_ins_code", single)
    branched = [(*row, number, chain.name, "n") for chain, number, row in rows.get("branched", [])]
    scheme = scheme.replace("pdb_strand_id", "pdb_asym_id")
    add(block, "_pdbx_branch_scheme", f"{scheme} num auth_asym_id hetero", branched)


def _add_links(block: gemmi.cif.Block, structure: Structure) -> None:
    """Add the bonds between residues that no sequence implies."""
    links = [tuple(map(int, bond)) for bond in structure.bonds[structure.is_link]]
    label, author = "asym_id comp_id seq_id atom_id", "asym_id comp_id seq_id"
    partner = [f"label_{x}" for x in label.split()] + [f"auth_{x}" for x in author.split()] + ["symmetry"]
    columns = [f"ptnr{side}_{item}" for side in (1, 2) for item in partner]
    rows: list[Sequence[Cell]] = []
    for number, (first, second, order) in enumerate(links, 1):
        kind = _link_kind(structure, first, second)
        ends = *_partner(structure, first), *_partner(structure, second)
        rows.append((f"{kind}{number}", kind, *ends, _BOND_ORDERS[order]))
    add(block, "_struct_conn", " ".join(["id conn_type_id", *columns, "pdbx_value_order"]), rows)
    add(block, "_struct_conn_type", "id", [(kind,) for kind in sorted({row[1] for row in rows}, key=str)])
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
    end = "entity_branch_list_num comp_id atom_id leaving_atom_id"
    columns = " ".join(f"{item}_{side}" for side in (1, 2) for item in end.split())
    numbered = [(number, *row) for number, row in enumerate(rows, 1)]
    add(block, "_pdbx_entity_branch_link", f"link_id entity_id {columns} value_order", numbered)


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
    """Return chain, component, number and name of an atom of a link, and its symmetry."""
    residue, index = int(structure.atom_residue[atom]), int(structure.atom_chain[atom])
    chain, code = structure.chain_names[index], str(structure.residue_code[residue])
    number = int(structure.residue_number[residue])
    label = number if structure.chain_is_polymer[index] else False
    return chain, code, label, str(structure.atom_name[atom]), chain, code, number, "1_555"


def _add_atoms(block: gemmi.cif.Block, prediction: Prediction) -> None:
    structure = prediction.structure
    residue, chain = structure.atom_residue, structure.atom_chain
    polymer = structure.chain_is_polymer[chain]
    codes = [str(code) for code in structure.residue_code[residue]]
    is_standard = np.array([code in STANDARD_RESIDUES for code in codes], bool)
    numbers = [str(number) for number in structure.residue_number[residue]]
    chain_of_atom = [structure.chain_names[index] for index in chain]
    names = [str(name) for name in structure.atom_name]
    # three decimals, so that PDB and mmCIF have the same numbers
    x, y, z = ([f"{value:.3f}" for value in column] for column in prediction.positions.T.tolist())
    count = len(names)
    block.set_mmcif_category(
        "_atom_site",
        {
            "group_PDB": np.where(polymer & is_standard, "ATOM", "HETATM").tolist(),
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
            "B_iso_or_equiv": [f"{value:.2f}" for value in prediction.b_factors.tolist()],
            "pdbx_formal_charge": [str(charge) if charge else None for charge in structure.atom_charge],
            "auth_seq_id": numbers,
            "auth_comp_id": codes,
            "auth_asym_id": chain_of_atom,
            "auth_atom_id": names,
            "pdbx_PDB_model_num": ["1"] * count,
        },
    )
    elements = sorted({str(element).upper() for element in structure.atom_element})
    add(block, "_atom_type", "symbol", [(element,) for element in elements])
