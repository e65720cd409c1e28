import numpy as np
import pytest

from features.chemistry.components import UnknownComponent, element_class, parse_components, read_component
from features.chemistry.residue_classes import (
    CLASSES,
    GAP,
    MoleculeKind,
    alignment_classes,
    component_code,
    residue_class,
)
from msa.base.errors import InputError

WATERLIKE = """data_XYZ
_chem_comp.id XYZ
_chem_comp.type 'NON-POLYMER'
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
_chem_comp_atom.charge
_chem_comp_atom.pdbx_leaving_atom_flag
_chem_comp_atom.pdbx_model_Cartn_x_ideal
_chem_comp_atom.pdbx_model_Cartn_y_ideal
_chem_comp_atom.pdbx_model_Cartn_z_ideal
XYZ C1 C 0 N 0 0 0
XYZ O1 O -1 Y 1.4 0 ?
XYZ H1 H 0 N 0 1 0
loop_
_chem_comp_bond.comp_id
_chem_comp_bond.atom_id_1
_chem_comp_bond.atom_id_2
_chem_comp_bond.value_order
XYZ C1 O1 SING
XYZ C1 H1 SING
"""


def test_alanine_has_its_heavy_atoms_bonds_and_leaving_atom() -> None:
    alanine = read_component("ALA")
    assert alanine.names == ("N", "CA", "C", "O", "CB", "OXT")
    assert alanine.type == "L-PEPTIDE LINKING"
    assert alanine.link_atoms == ("C", "N")
    assert alanine.leaving.tolist() == [False] * 5 + [True]
    assert {frozenset(alanine.names[i] for i in bond[:2]): bond[2] for bond in alanine.bonds} == {
        frozenset({"N", "CA"}): 1,
        frozenset({"CA", "C"}): 1,
        frozenset({"CA", "CB"}): 1,
        frozenset({"C", "O"}): 2,
        frozenset({"C", "OXT"}): 1,
    }
    assert alanine.ideal.shape == (6, 3)
    assert not np.isnan(alanine.ideal).any()


def test_lower_case_codes_and_old_atom_names_are_understood() -> None:
    guanosine = read_component("g")
    assert guanosine.index("O1P") == guanosine.index("OP1") == 2
    assert guanosine.index("nothing") is None


def test_missing_coordinates_are_nan() -> None:
    # one atom of unknown element, of which only a structure has coordinates
    unknown = read_component("UNX")
    assert np.isnan(unknown.ideal).all()
    assert not np.isnan(unknown.model).any()


def test_unknown_code_is_a_typed_error_of_one_line() -> None:
    with pytest.raises(UnknownComponent) as caught:
        read_component("ZZZZ9")
    assert str(caught.value) == "unknown component 'ZZZZ9': not in the Chemical Component Dictionary"


def test_components_of_the_user_are_read_without_hydrogens() -> None:
    component = parse_components(WATERLIKE, "job.json")["XYZ"]
    assert component.names == ("C1", "O1")
    assert component.charges.tolist() == [0, -1]
    assert component.leaving.tolist() == [False, True]
    assert component.bonds.tolist() == [[0, 1, 1]]
    np.testing.assert_array_equal(component.ideal, [[0, 0, 0], [1.4, 0, np.nan]])
    assert np.isnan(component.model).all()


@pytest.mark.parametrize("text", ["data_X\n_chem_comp.id X\n", "no mmCIF", ""])
def test_components_of_the_user_without_atoms_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"job\.json"):
        parse_components(text, "job.json")


def test_residue_classes() -> None:
    assert CLASSES == 32
    assert [residue_class(code) for code in ("ALA", "VAL", "UNK", "A", "N", "DA", "DN", "SEP")] == [
        0, 19, 20, 21, 25, 26, 30, 20,
    ]  # fmt: skip
    assert [component_code(letter, MoleculeKind.PROTEIN) for letter in "AU"] == ["ALA", "UNK"]
    assert [component_code(letter, MoleculeKind.DNA) for letter in "ATU"] == ["DA", "DT", "DN"]
    table = alignment_classes(MoleculeKind.RNA)
    assert table[np.frombuffer(b"AGCUN-TX", np.uint8)].tolist() == [21, 22, 23, 24, 25, GAP, 25, 25]


def test_elements() -> None:
    assert [element_class(symbol) for symbol in ("H", "C", "Cl", "CL", "OG", "X", "D")] == [
        0, 5, 16, 16, 117, 118, 118,
    ]  # fmt: skip
