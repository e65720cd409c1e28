"""The network's heavy operations.

Each subpackage is one operation with modules `reference`, `triton` and perhaps `hopper` that have the same
functions; `cuda.fused.dispatch.implementation_module` returns the one for a device. Functions of a subpackage
itself make that choice at each call, and check shapes.
"""

LAYER_NORM_EPSILON = 1e-5
"""Added to variances by all layer normalisations, those inside of other operations included."""
