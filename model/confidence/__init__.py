"""Scores of confidence."""
