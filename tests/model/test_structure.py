"""Tests of the tables of molecules."""

import gemmi

from model.structure import NONMETALS


def test_metals_are_those_of_gemmi() -> None:
    for number in range(119):
        element = gemmi.Element(number)
        assert (element.name in NONMETALS) != element.is_metal
