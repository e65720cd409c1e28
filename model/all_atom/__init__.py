"""Checks and contacts of predictions of any molecules."""
