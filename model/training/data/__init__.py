"""Chains, samples and files of training data."""
