"""Everything users hand over as targets: sequences, alignments, job files and cached names."""
