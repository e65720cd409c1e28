"""Components: residues and ligands with named atoms, from the Chemical Component Dictionary or from mmCIF.

The dictionary comes with biotite. Hydrogens are left out everywhere, as the network does not see them.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import gemmi
import numpy as np
from biotite.structure.info import get_from_ccd

from msa.base.errors import InputError
from msa.io.structures import GEMMI_LOCATION

_BOND_ORDERS = {"SING": 1, "DOUB": 2, "TRIP": 3, "QUAD": 4}
_PEPTIDE_TYPES = frozenset({"PEPTIDE LINKING", "L-PEPTIDE LINKING", "D-PEPTIDE LINKING"})
_MAX_CHARGE = 20
_NUCLEOTIDE_TYPES = frozenset({"RNA LINKING", "DNA LINKING"})

_HYDROGENS = frozenset({"H", "D"})
_SYMBOLS = [gemmi.Element(number).name for number in range(1, 119)]
_CLASS_OF_SYMBOL = MappingProxyType({symbol.upper(): index for index, symbol in enumerate(_SYMBOLS)})
_UNKNOWN_ELEMENT = len(_SYMBOLS)
ELEMENT_CLASSES = len(_SYMBOLS) + 1
"""The elements, by atomic number from 1 to 118, and one class for everything else."""


def element_class(symbol: str) -> int:
    """Return the atomic number minus one, or the last class for a symbol that is no element."""
    return _CLASS_OF_SYMBOL.get(symbol.upper(), _UNKNOWN_ELEMENT)


def element_symbol(element: str) -> str:
    """Return a symbol in its usual letters, such as "Zn" for "ZN"; "X" for what is no element."""
    index = element_class(element)
    return "X" if index == _UNKNOWN_ELEMENT else _SYMBOLS[index]


class UnknownComponent(InputError):
    """A code that is not in the Chemical Component Dictionary, nor among the components of the job."""

    def __init__(
        self, code: str, path: str | os.PathLike[str] | None = None, line: int | None = None
    ) -> None:
        self.code = code
        super().__init__(f"unknown component {code!r}: not in the Chemical Component Dictionary", path, line)
        # what pickling calls the constructor with
        self.args = code, path, line


@dataclass(frozen=True, eq=False)
class Component:
    """A residue or a ligand without its hydrogens.

    Attributes:
        code: its code in the dictionary, or the name of a ligand drawn by the user.
        type: its type in the dictionary, upper case, such as `L-PEPTIDE LINKING`.
        elements: their symbols, upper case.
        charges: int [A], formal charges.
        leaving: bool [A], whether an atom leaves when the component is linked to another.
        bonds: int [B, 3], two atoms and the order of their bond.
        ideal: float64 [A, 3], idealised coordinates in Å; NaN where the dictionary has none.
        model: float64 [A, 3], coordinates from a structure in Å; NaN where the dictionary has none.
        aliases: other names of its atoms that the dictionary gives, with the indices of the atoms.
        smiles: the SMILES string of a ligand drawn by the user.
        given_name: its name in the user's file; None for components of the dictionary and drawn ones.
    """

    code: str
    type: str
    names: tuple[str, ...]
    elements: tuple[str, ...]
    charges: np.ndarray = field(repr=False)
    leaving: np.ndarray = field(repr=False)
    bonds: np.ndarray = field(repr=False)
    ideal: np.ndarray = field(repr=False)
    model: np.ndarray = field(repr=False)
    aliases: Mapping[str, int] = field(default_factory=dict, repr=False)
    smiles: str | None = None
    given_name: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def link_atoms(self) -> tuple[str, str] | None:
        """The atoms of the bonds to the next and to the previous residue of a polymer, if it has such."""
        if self.type in _PEPTIDE_TYPES:
            return "C", "N"
        if self.type in _NUCLEOTIDE_TYPES:
            return "O3'", "P"
        return None

    def index(self, name: str) -> int | None:
        """Return the index of an atom by its name or its other name; None if there is none."""
        if name in self.names:
            return self.names.index(name)
        return self.aliases.get(name)


@functools.lru_cache(maxsize=512)
def read_component(code: str) -> Component:
    """Return a component of the Chemical Component Dictionary.

    Raises:
        UnknownComponent: the dictionary has no such code, or no atoms for it.
    """
    code = code.upper()
    # one column at a time: a whole category would decode columns that nobody needs
    if get_from_ccd("chem_comp_atom", code, _ATOM_TEXT[0]) is None:
        raise UnknownComponent(code)
    text = {name: _text(get_from_ccd("chem_comp_atom", code, name)) for name in _ATOM_TEXT}
    numbers = {name: _numbers(get_from_ccd("chem_comp_atom", code, name)) for name in _ATOM_NUMBERS}
    has_bonds = get_from_ccd("chem_comp_bond", code, _BOND_TEXT[0]) is not None
    bonds = [_text(get_from_ccd("chem_comp_bond", code, name)) for name in _BOND_TEXT] if has_bonds else None
    return _build(code, _text(get_from_ccd("chem_comp", code, "type"))[0], text, numbers, bonds)


@functools.lru_cache(maxsize=512)
def describe_component(code: str) -> tuple[str, str]:
    """Return name and formula of a component of the dictionary; empty texts if it has no such code."""
    columns = [get_from_ccd("chem_comp", code.upper(), item) for item in ("name", "formula")]
    name, formula = ("" if column is None else _text(column)[0] for column in columns)
    return name, formula


def one_letter_code(code: str) -> str:
    """Return the letters that the dictionary gives a residue, such as S for SEP; "?" without."""
    column = get_from_ccd("chem_comp", code.upper(), "one_letter_code")
    return "?" if column is None else _text(column)[0]


_ATOM_TEXT = ("atom_id", "alt_atom_id", "type_symbol", "pdbx_leaving_atom_flag")
_IDEAL = ("pdbx_model_Cartn_x_ideal", "pdbx_model_Cartn_y_ideal", "pdbx_model_Cartn_z_ideal")
_MODEL = ("model_Cartn_x", "model_Cartn_y", "model_Cartn_z")
_ATOM_NUMBERS = ("charge", *_IDEAL, *_MODEL)
_BOND_TEXT = ("atom_id_1", "atom_id_2", "value_order")


def parse_components(text: str, path: str | None) -> dict[str, Component]:
    """Parse components in mmCIF, as AlphaFold 3's `userCCD` has them.

    Raises:
        InputError: not mmCIF, or a block without atoms.
    """
    try:
        document = gemmi.cif.read_string(text)
    except (ValueError, RuntimeError) as error:
        location = GEMMI_LOCATION.match(str(error))
        line, reason = (int(location[1]), location[2]) if location else (None, str(error))
        raise InputError(f"components are not valid mmCIF: {reason}", path, line) from None
    components: dict[str, Component] = {}
    for block in document:
        table = block.find("_chem_comp_atom.", ["atom_id"])
        if not table:
            raise InputError(f"component {block.name!r} has no atoms", path)
        code = _first(block, "_chem_comp.id") or block.name
        try:
            if code.upper() in map(str.upper, components):
                raise ValueError("is defined twice")
            components[code] = _parse_block(block, code, len(table))
        except ValueError as error:
            raise InputError(f"component {code!r:.40}: {error}", path) from None
    if not components:
        raise InputError("no component in the mmCIF text", path)
    return components


def _parse_block(block: gemmi.cif.Block, code: str, atoms: int) -> Component:
    """Return the component of a block; raise ValueError if its columns do not fit together."""
    prefix = "_chem_comp_atom."
    text = {name: _cif_column(block, prefix + name, atoms) for name in _ATOM_TEXT}
    numbers = {name: _floats(_cif_column(block, prefix + name, atoms)) for name in _ATOM_NUMBERS}
    if len(set(text["atom_id"])) < atoms:
        raise ValueError("two atoms have the same name")
    if np.any(np.abs(np.nan_to_num(numbers["charge"])) > _MAX_CHARGE):
        raise ValueError(f"an atom has a charge of more than {_MAX_CHARGE}")
    count = len(block.find_values(f"_chem_comp_bond.{_BOND_TEXT[0]}"))
    bonds = [_cif_column(block, f"_chem_comp_bond.{name}", count) for name in _BOND_TEXT]
    _check_tables(text, bonds)
    component = _build(code, _first(block, "_chem_comp.type"), text, numbers, bonds)
    return replace(component, given_name=_first(block, "_chem_comp.name"))


def _check_tables(text: Mapping[str, list[str]], bonds: list[list[str]]) -> None:
    """Raise ValueError for atoms without a known element, and for bonds of unknown atoms or orders."""
    symbols = [symbol.upper() for symbol in text["type_symbol"]]
    for name, symbol in zip(text["atom_id"], symbols, strict=True):
        if symbol not in _CLASS_OF_SYMBOL and symbol not in _HYDROGENS:
            raise ValueError(f"atom {name} has the type_symbol {symbol}, which is no element")
    heavy = sum(symbol not in _HYDROGENS for symbol in symbols)
    if not heavy:
        raise ValueError("has no atoms besides hydrogens")
    if heavy > 1 and not bonds[0]:
        raise ValueError(f"has {heavy} atoms and no bonds (_chem_comp_bond)")
    for first, second, order in zip(*bonds, strict=True):
        if absent := {first, second} - set(text["atom_id"]):
            raise ValueError(f"bond to {min(absent)}, which is none of its atoms")
        if order.upper() not in _BOND_ORDERS:
            known = ", ".join(_BOND_ORDERS)
            raise ValueError(f"bond of {first} and {second}: value_order is {order}, expected one of {known}")


def _build(
    code: str,
    kind: str,
    text: Mapping[str, list[str]],
    numbers: Mapping[str, np.ndarray],
    bonds: list[list[str]] | None,
) -> Component:
    """Return a component from the columns of its tables, without its hydrogens."""
    heavy = [index for index, symbol in enumerate(text["type_symbol"]) if symbol.upper() not in _HYDROGENS]
    names = tuple(text["atom_id"][index] for index in heavy)
    position = {name: index for index, name in enumerate(names)}
    aliases = {text["alt_atom_id"][index]: row for row, index in enumerate(heavy)}
    rows = [
        (position[first], position[second], _BOND_ORDERS.get(order.upper(), 1))
        for first, second, order in zip(*(bonds or ([], [], [])), strict=True)
        if first in position and second in position
    ]
    return Component(
        code,
        kind.upper(),
        names,
        tuple(text["type_symbol"][index].upper() for index in heavy),
        np.nan_to_num(numbers["charge"][heavy]).astype(np.int64),
        np.array([text["pdbx_leaving_atom_flag"][index] == "Y" for index in heavy], bool),
        np.array(rows, np.int64).reshape(-1, 3),
        np.stack([numbers[name][heavy] for name in _IDEAL], 1),
        np.stack([numbers[name][heavy] for name in _MODEL], 1),
        {name: row for name, row in aliases.items() if name not in position and name not in ("?", ".")},
    )


def _text(column: object) -> list[str]:
    return [str(value) for value in column.as_array(str, masked_value="?")]  # type: ignore[attr-defined]


def _numbers(column: object) -> np.ndarray:
    """Return a column of the dictionary as float64, with NaN where it has no value."""
    return np.asarray(column.as_array(float, masked_value=np.nan))  # type: ignore[attr-defined]


def _floats(column: list[str]) -> np.ndarray:
    """Return a column of mmCIF as float64, with NaN where it has no number."""
    return np.array([gemmi.cif.as_number(value) for value in column], np.float64)


def _first(block: gemmi.cif.Block, tag: str) -> str:
    """Return the first value of a tag, or an empty text."""
    values = block.find_values(tag)
    return str(gemmi.cif.as_string(values[0])) if len(values) else ""


def _cif_column(block: gemmi.cif.Block, tag: str, length: int) -> list[str]:
    """Return the values of a tag, or question marks if the block lacks it."""
    values = [str(gemmi.cif.as_string(value)) or "?" for value in block.find_values(tag)]
    if values and len(values) != length:
        raise ValueError(f"{tag} has {len(values):,} values instead of {length:,}")
    return values or ["?"] * length
