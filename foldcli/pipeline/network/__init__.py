"""The network of a run, on one or several devices."""
