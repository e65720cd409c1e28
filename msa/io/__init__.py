"""Readers and writers of sequence, alignment and hit files."""
