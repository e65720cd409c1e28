"""A GPU of a search: its memory, streams and toolkit."""
