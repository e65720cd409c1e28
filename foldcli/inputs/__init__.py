"""Conversion of user input to targets: sequences, alignments, job files and names of cached targets."""
