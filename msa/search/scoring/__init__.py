"""Scores of candidates beyond their alignment."""
