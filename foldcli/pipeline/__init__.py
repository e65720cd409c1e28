"""The way of one target through search, features and prediction, resumable after each."""
