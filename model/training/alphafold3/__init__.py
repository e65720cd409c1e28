"""The training form of the all-atom network."""
