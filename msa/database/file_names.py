"""Names of a database's files that a command looks at before it imports numpy."""

MANIFEST = "manifest.json"
RESIDUES = "residues.u8"
CLUSTERS = "clusters.idx"
"""Exists in databases with clusters."""
