"""The Gotoh kernels of every shape compile for the GPUs that use them without local memory.

Needs NVIDIA's compiler libraries, and for registers and spills `ptxas`; neither needs a GPU.
"""

import os
from collections.abc import Callable

import pytest

pytest.importorskip("numba.cuda")

from cuda.alignment.smith_waterman import HOPPER, PLAIN, Shape
from cuda.alignment.smith_waterman.kernel import (
    PACK_SIGNATURE,
    SIGNATURES,
    WALK_SIGNATURE,
    WALK_THREADS,
    Kind,
    pack_runs,
    plain,
    walk,
)

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="the simulator compiles nothing"
)
CAPABILITIES = {(8, 0): PLAIN, (9, 0): HOPPER}
KERNELS = sorted(
    {
        (capability, kind, shape)
        for capability, shapes in CAPABILITIES.items()
        for kind, chosen in (
            ("packed", shapes.packed + shapes.swift),
            ("wide", shapes.wide),
            ("traced", shapes.wide),
        )
        for shape in chosen
    },
    key=lambda kernel: (*kernel[:2], kernel[2].lanes, kernel[2].columns),
)


def name(part: object) -> str:
    if isinstance(part, Shape):
        return f"{part.lanes} lanes of {part.columns}"
    return part if isinstance(part, str) else "sm_{}{}".format(*part)  # type: ignore[misc]


@pytest.mark.parametrize(("capability", "kind", "shape"), KERNELS, ids=name)
def test_row_kernels(
    assert_compiles: Callable[..., None], capability: tuple[int, int], kind: Kind, shape: Shape
) -> None:
    assert_compiles(plain(kind, shape), SIGNATURES[kind], capability, (shape.threads, 1))


@pytest.mark.parametrize("capability", CAPABILITIES, ids=name)
def test_walk(assert_compiles: Callable[..., None], capability: tuple[int, int]) -> None:
    assert_compiles(walk, WALK_SIGNATURE, capability, (WALK_THREADS, 1))
    assert_compiles(pack_runs, PACK_SIGNATURE, capability, (WALK_THREADS, 1))
