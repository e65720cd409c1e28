"""Input of comparisons with experiment."""
