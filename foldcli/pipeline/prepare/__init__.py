"""Features and templates of targets, ahead of the network."""
