"""Sequences in, alignments out: readers and writers, target database, profiles, statistics, engines."""
