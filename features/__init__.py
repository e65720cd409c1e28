"""Inputs of networks from alignments, templates and molecules: features, their cache, and sampling."""
