"""Searches of target databases: single, iterated, exact, clustered and in parts."""
