"""Searches of the parts of a split database, and the hits that they merge."""
