"""Layers that networks share, and what runs them."""
