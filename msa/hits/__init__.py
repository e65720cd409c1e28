"""Settings and results of a search: the targets that pass the filter, hits and their alignments."""
