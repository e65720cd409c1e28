"""Sequence databases of others: their addresses, and how they become target databases."""
