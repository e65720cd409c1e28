"""Chemical elements by symbol."""

from types import MappingProxyType

SYMBOLS = [
    "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar", "K",
    "Ca", "Sc", "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr",
    "Rb", "Sr", "Y", "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I",
    "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb",
    "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr",
    "Ra", "Ac", "Th", "Pa", "U", "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr", "Rf",
    "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og",
]  # fmt: skip
# atomic numbers from 1 to 118, and one class for everything else
CLASSES = len(SYMBOLS) + 1
UNKNOWN = CLASSES - 1

_CLASS_OF_SYMBOL = MappingProxyType({symbol.upper(): index for index, symbol in enumerate(SYMBOLS)})
HYDROGENS = frozenset({"H", "D"})


def element_class(symbol: str) -> int:
    """Return the atomic number minus one, or UNKNOWN for a symbol that is no element."""
    return _CLASS_OF_SYMBOL.get(symbol.upper(), UNKNOWN)


def symbol(element: str) -> str:
    """Return a symbol in its usual letters, such as "Zn" for "ZN"; "X" for what is no element."""
    index = element_class(element)
    return "X" if index == UNKNOWN else SYMBOLS[index]
