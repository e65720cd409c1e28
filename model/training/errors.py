"""Errors of training that a user can correct."""


class ConfigError(ValueError):
    """A training configuration that cannot be used. Its text is `key: reason`."""


class DataError(ValueError):
    """Training data that cannot be read. Its text is `file: reason`."""


class TrainingDiverged(RuntimeError):
    """Too many consecutive steps had a gradient that was not finite or far too large."""
