from itertools import permutations

import numpy as np
import pytest

from features.chemistry.components import Component, read_component
from features.chemistry.molecules import parse_smiles
from features.training.labels import equivalent_orders


def brute_force(component: Component) -> set[tuple[int, ...]]:
    """Return all orders that keep elements, charges and bonds."""
    kinds = list(zip(component.elements, component.charges.tolist(), strict=True))
    bonds = {(frozenset(map(int, bond[:2])), int(bond[2])) for bond in component.bonds}
    return {
        order
        for order in permutations(range(len(kinds)))
        if [kinds[i] for i in order] == kinds
        and {(frozenset(order[i] for i in pair), kind) for pair, kind in bonds} == bonds
    }


@pytest.mark.parametrize("code", ["GOL", "VAL", "ACT", "SO4", "EDO", "LEU"])
def test_orders_are_all_that_keep_atoms_and_bonds(code: str) -> None:
    component = read_component(code)
    orders = equivalent_orders(component)
    assert set(map(tuple, orders.tolist())) == brute_force(component)
    assert orders[0].tolist() == list(range(len(component)))


@pytest.mark.parametrize(
    ("smiles", "count"),
    [("c1ccccc1", 12), ("Cc1ccccc1", 2), ("C1CCCCC1", 12), ("[Mg+2]", 1), ("CC(C)(C)C", 24)],
)
def test_rings_have_their_rotations_and_reflections(smiles: str, count: int) -> None:
    assert len(equivalent_orders(parse_smiles(smiles))) == count


def test_atoms_that_left_exchange_with_no_other() -> None:
    component = read_component("PHE")
    kept = np.array([name != "OXT" for name in component.names])
    names = np.array(component.names)[kept]
    first, second = equivalent_orders(component, kept)
    assert first.tolist() == list(range(kept.sum()))
    exchanged = {tuple(pair) for pair in zip(names, names[second], strict=True) if pair[0] != pair[1]}
    assert exchanged == {("CD1", "CD2"), ("CD2", "CD1"), ("CE1", "CE2"), ("CE2", "CE1")}


def test_search_ends_at_a_limit_and_keeps_the_identity() -> None:
    component = parse_smiles("CC(C)(C)C.CC(C)(C)C")
    orders = equivalent_orders(component, most=10)
    assert 1 < len(orders) <= 11
    assert orders[0].tolist() == list(range(len(component)))
