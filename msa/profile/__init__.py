"""Substitution matrices, profiles (PSSMs) and score statistics."""
