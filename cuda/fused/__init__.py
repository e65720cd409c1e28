"""The network's heavy operations.

Each subpackage is one operation. Its public functions run on any device and take `implementation="auto" |
"reference" | "triton" | "hopper"`. `cuda.fused.dispatch.implementation_module` makes that choice once for
many calls.
"""

LAYER_NORM_EPSILON = 1e-5
"""Added to variances by all layer normalisations, those inside of other operations included."""
