"""Data sets for training, from one's own structures."""
