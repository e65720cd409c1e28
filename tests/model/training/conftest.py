"""A small set of chains and networks for the tests of training."""
