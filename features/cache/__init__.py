"""The cache of features."""
