"""Tests of the tables of molecules."""

from dataclasses import replace

import numpy as np

from model.structure import protein_structure


def test_metals() -> None:
    structure = protein_structure(np.zeros(2, int), np.arange(2), np.ones((2, 37), bool), None)
    metals, others = (
        ["Li", "NA", "Zn", "Fe", "Po", "Rf"],
        ["H", "D", "C", "Cl", "BR", "Se", "As", "Te", "Xe", "X"],
    )
    atoms = replace(structure, atom_element=np.array([*metals, *others], object))
    assert atoms.atom_is_metal.tolist() == [True] * len(metals) + [False] * len(others)
