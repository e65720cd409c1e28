"""Refinement of the structures of a run."""

from concurrent.futures import Future, wait
from functools import cache
from typing import TYPE_CHECKING

from foldcli.pipeline.cpu_kernels import REFINEMENT, compile_cpu_kernels

if TYPE_CHECKING:
    from model.prediction import Prediction


@cache
def compile_refinement() -> "Future[None]":
    """Begin to compile the kernels of `refine_prediction` in a process, unless that has been done."""
    return compile_cpu_kernels(REFINEMENT)


def refine_prediction(prediction: "Prediction") -> "Prediction":
    """Return a prediction with its structure refined; see `model.refinement.refine`."""
    from model.refinement.refine import refine

    wait([compile_refinement()])
    return refine(prediction)
