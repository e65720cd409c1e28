"""Settings, state and steps of a training run."""
