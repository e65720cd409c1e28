"""Training samples of the all-atom network, from experimental structures."""
