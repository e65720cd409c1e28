"""The network's heavy operations.

Each subpackage is one operation. Its public functions take `implementation="auto" | "reference" | "triton" |
"hopper"` and run on any device; its `resolve` makes that choice once for many calls.
"""
