"""Runs of `foldcli search`."""
