"""Comparison of predicted with experimental structures."""
