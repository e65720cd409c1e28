"""Training runs of `foldcli train`, by family of networks."""
