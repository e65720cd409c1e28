"""Files of a finished target: layouts, scores, done.json and the summary."""
