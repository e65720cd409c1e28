"""Files of a finished target: layout, ranked models, done.json and the summary of a run."""
