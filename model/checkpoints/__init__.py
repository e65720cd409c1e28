"""Readers of parameter files, one module for each source."""
