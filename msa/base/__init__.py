"""Errors, atomic files and other basics that every package may import."""
