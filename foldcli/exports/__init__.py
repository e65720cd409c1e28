"""Job files of other programs, with the alignments that a search found for their proteins."""
