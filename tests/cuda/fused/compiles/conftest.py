"""Fixtures of tests that compile kernels, which need Triton."""

from importlib.util import find_spec

if find_spec("triton"):
    from tests.cuda.fused.compiles.compiled_kernel import compiled, device

    __all__ = ["compiled", "device"]
