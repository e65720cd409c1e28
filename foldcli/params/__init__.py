"""Parameter files of networks on this machine: download, unpack, list and verify; see docs/parameters.md."""
