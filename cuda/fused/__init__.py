"""The network's heavy operations.

Each subpackage is one operation. Its public functions run on any device and take `implementation="auto" |
"reference" | "triton" | "hopper"`. `cuda.fused.dispatch.implementation_module` makes that choice once for
many calls.
"""
