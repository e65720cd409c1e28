"""Comparison of models with experimental structures: reading, tables, and folders of references."""
