"""The search stage of a run."""
