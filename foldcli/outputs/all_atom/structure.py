"""The tables of a job's molecules, as the writers and checks of `model.all_atom` take them."""

import numpy as np
from rdkit import Chem, rdBase

from features.assembly.atoms import Atoms, MoleculeChain
from features.assembly.job import Ligand, Polymer
from features.assembly.tokens import Tokens
from features.chemistry.components import Component, describe_component, element_symbol
from features.chemistry.molecules import InvalidMolecule, build_molecule, without_hydrogens
from features.chemistry.residue_classes import MoleculeKind
from foldcli.units import format_length
from model.structure import Chain, ChemicalComponent, Entity, EntityKind, Structure

_POLYMER_KINDS = {
    MoleculeKind.PROTEIN: EntityKind.PROTEIN,
    MoleculeKind.RNA: EntityKind.RNA,
    MoleculeKind.DNA: EntityKind.DNA,
}
_KEKULE_ORDERS = {
    Chem.BondType.SINGLE: 1,
    Chem.BondType.DOUBLE: 2,
    Chem.BondType.TRIPLE: 3,
    Chem.BondType.QUADRUPLE: 4,
}


def build_structure(atoms: Atoms, tokens: Tokens) -> Structure:
    """Return the tables of a job's molecules."""
    components = {
        residue.component.code: residue.component for chain in atoms.chains for residue in chain.residues
    }
    described = {code: describe(component) for code, component in components.items()}
    starts = np.ones(len(atoms), bool)
    starts[1:] = (np.diff(atoms.chain) != 0) | (np.diff(atoms.residue) != 0)
    entities, chains = _entities(atoms, described)
    residue = np.cumsum(starts) - 1
    return Structure(
        entities=entities,
        chains=chains,
        components=described,
        residue_chain=atoms.chain[starts],
        residue_number=atoms.residue[starts],
        residue_code=atoms.code[starts],
        atom_residue=residue,
        atom_name=atoms.name,
        atom_element=np.array([element_symbol(element) for element in atoms.element], object),
        atom_charge=_atom_charges(atoms),
        bonds=np.column_stack([atoms.bonds, _bond_orders(atoms, residue, described)]),
        token_start=tokens.start,
        token_count=tokens.count,
        token_is_atom=tokens.is_atomized,
    )


def describe(component: Component) -> ChemicalComponent:
    """Return a component with its name, its formula and the aromaticity of its bonds."""
    orders = _aromatic_orders(component)
    is_local = component.smiles is not None or component.given_name is not None
    name, formula = (component.given_name or "", "") if is_local else describe_component(component.code)
    return ChemicalComponent(
        code=component.code,
        type=component.type,
        name=name,
        formula=formula,
        names=component.names,
        elements=tuple(element_symbol(element) for element in component.elements),
        charges=tuple(int(charge) for charge in component.charges),
        bonds=tuple(
            (int(first), int(second), *orders.get((int(first), int(second)), (int(order), False)))
            for first, second, order in component.bonds
        ),
        in_dictionary=not is_local and bool(name),
        smiles=component.smiles,
    )


def _aromatic_orders(component: Component) -> dict[tuple[int, int], tuple[int, bool]]:
    """Return the order and the aromaticity of the bonds that RDKit knows, by their atoms."""
    try:
        molecule = without_hydrogens(build_molecule(component, chiral=False))
    except InvalidMolecule:
        return {}
    aromatic = {bond.GetIdx(): bond.GetIsAromatic() for bond in molecule.GetBonds()}
    kekule = Chem.Mol(molecule)
    with rdBase.BlockLogs():
        try:
            Chem.Kekulize(kekule, clearAromaticFlags=True)
        except (ValueError, RuntimeError):
            return {}
    result = {}
    for bond in kekule.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        value = _KEKULE_ORDERS.get(bond.GetBondType(), 1), aromatic[bond.GetIdx()]
        result[ends] = result[ends[::-1]] = value
    return result


def _entities(
    atoms: Atoms, components: dict[str, ChemicalComponent]
) -> tuple[tuple[Entity, ...], tuple[Chain, ...]]:
    """Return the entities in the order of their first chains, and the chains.

    Ligands of the same components are one entity if their bonds are the same, too.
    """
    links: dict[int, list[tuple[tuple[int, str], ...]]] = {}
    for bond in atoms.bonds[_joins_residues_of_a_ligand(atoms)]:
        ends = sorted((int(atoms.residue[atom]), str(atoms.name[atom])) for atom in bond)
        links.setdefault(int(atoms.chain[bond[0]]), []).append(tuple(ends))
    entities: dict[tuple[object, ...], int] = {}
    rows, result = [], []
    for index, chain in enumerate(atoms.chains):
        codes = tuple(residue.component.code for residue in chain.residues)
        sequence = chain.entity.sequence if isinstance(chain.entity, Polymer) else ""
        kind = _kind(chain, components)
        key = kind, codes, sequence, tuple(sorted(links.get(index, ())))
        if key not in entities:
            rows.append(Entity(kind, codes, sequence, _describe_entity(kind, codes, components)))
        result.append(Chain(chain.name, entities.setdefault(key, len(entities))))
    return tuple(rows), tuple(result)


def _joins_residues_of_a_ligand(atoms: Atoms) -> np.ndarray:
    """Return a mask of the bonds between two residues of one ligand, bool [B]."""
    first, second = atoms.bonds.T
    joins = (atoms.chain[first] == atoms.chain[second]) & (atoms.residue[first] != atoms.residue[second])
    return np.asarray(joins & (atoms.kind[first] == MoleculeKind.LIGAND))


def _kind(chain: MoleculeChain, components: dict[str, ChemicalComponent]) -> EntityKind:
    if not isinstance(chain.entity, Ligand):
        return _POLYMER_KINDS[chain.kind]
    if len(chain.residues) > 1:
        return EntityKind.BRANCHED
    is_single_atom = len(components[chain.residues[0].component.code].names) == 1
    return EntityKind.ION if is_single_atom else EntityKind.LIGAND


def _describe_entity(
    kind: EntityKind, codes: tuple[str, ...], components: dict[str, ChemicalComponent]
) -> str:
    if kind.is_polymer:
        return f"{kind} of {format_length(len(codes), kind)}"
    if len(codes) > 1:
        return "-".join(codes)
    component = components[codes[0]]
    return component.name or component.smiles or component.code


def _atom_charges(atoms: Atoms) -> np.ndarray:
    """Return the formal charge of each atom, int [A]."""
    return np.concatenate(
        [residue.component.charges[~residue.leaving] for chain in atoms.chains for residue in chain.residues]
    )


def _bond_orders(atoms: Atoms, residue: np.ndarray, components: dict[str, ChemicalComponent]) -> np.ndarray:
    """Return the order of each bond, int [B]: that of the component, and 1 between residues."""
    orders = {
        (code, component.names[first], component.names[second]): order
        for code, component in components.items()
        for first, second, order, _ in component.bonds
    }
    result = np.ones(len(atoms.bonds), np.int64)
    for index, (first, second) in enumerate(atoms.bonds.tolist()):
        if residue[first] == residue[second]:
            result[index] = orders.get((atoms.code[first], atoms.name[first], atoms.name[second]), 1)
    return result
