"""Chemical elements by symbol."""

from types import MappingProxyType

import gemmi

SYMBOLS = [gemmi.Element(number).name for number in range(1, 119)]
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
