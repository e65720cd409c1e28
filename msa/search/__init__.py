"""Searches and iterated searches, hits, and filters of their alignments."""
