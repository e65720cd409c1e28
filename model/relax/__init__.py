"""Relaxation of predicted structures with a force field."""
