"""Model inputs from alignments: deterministic features, their cache, and random sampling."""
