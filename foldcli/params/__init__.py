"""DeepMind's parameter files on this machine: fetched, unpacked, listed and verified; docs/parameters.md."""
