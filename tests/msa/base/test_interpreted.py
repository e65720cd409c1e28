"""Tests of the choice between compiled kernels and slower code."""

import threading

import pytest

from msa.base import interpreted
from msa.base.interpreted import InterpretedBudget


def test_many_values_need_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreted, "_MAX_VALUES", 10)
    budget = InterpretedBudget()
    assert [budget.take(count) for count in (6, 4, 0, 1, 1)] == [True, True, True, False, False]


def test_kernels_are_used_once_they_are_loaded() -> None:
    budget, loading, loads = InterpretedBudget(), threading.Event(), []

    def load() -> None:
        loads.append(1)
        loading.wait()

    budget.load_in_background(load)
    budget.load_in_background(load)
    most = interpreted._MAX_VALUES
    assert [budget.take(count) for count in (most, most)] == [True, True]
    # this many values wait for the kernels
    threading.Timer(0.2, loading.set).start()
    assert not budget.take(most + 1) and loading.is_set()
    assert not budget.take(0) and loads == [1]


def test_half_of_the_budget_is_noticed() -> None:
    budget, half = InterpretedBudget(), interpreted._MAX_VALUES // 2
    assert budget.take(half) and not budget.is_mostly_used
    assert budget.take(1) and budget.is_mostly_used


def test_errors_of_loading_are_left_to_the_first_use() -> None:
    budget = InterpretedBudget()
    budget.load_in_background(lambda: 1 // 0 and None)
    assert budget._loading is not None
    budget._loading.join()
    assert not budget.take(1)
