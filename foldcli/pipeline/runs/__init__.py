"""Whole runs over lists of targets."""
