"""Workers that each drive one GPU of a search."""
