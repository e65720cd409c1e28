"""Values that the options of the command line and the modules behind them share; imports nothing."""

from typing import Any

MAX_SEED = 2**32 - 1
"""The largest seed of a prediction, as in AlphaFold 3."""


def value_or_default(value: Any, default: Any) -> Any:
    """Return an option's value, or the default if it was not given."""
    return default if value is None else value


def parse_size(text: str) -> int:
    """Return the bytes of text such as 500M; K, M and G are powers of 1,024.

    Raises:
        ValueError: it is not a size.
    """
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not (number.isascii() and number.isdecimal() and int(number)):
        raise ValueError(f"expected bytes such as 500000000, 500M or 2G, got {text!r}")
    return int(number) * unit
