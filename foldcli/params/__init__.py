"""DeepMind's parameter files on this machine: download, unpack, list and verify; see docs/parameters.md."""
