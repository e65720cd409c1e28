"""The stages of a run (search, features, predict, report), their settings, and the state of each target."""
