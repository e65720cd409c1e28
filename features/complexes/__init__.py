"""Features of complexes: rows of chains paired by species, and the alignments of all chains merged."""
