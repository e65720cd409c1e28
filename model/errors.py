"""Exceptions of the networks: parameters, memory, relaxation, ranks and training.

Like those in `msa.base.errors`, all can be pickled.
"""

import os

from msa.base.errors import MissingError


class ParametersError(ValueError):
    """An unusable parameter file. The message is `path: reason`.

    Args:
        reason: a short description of the problem, with the affected keys.
        path: the file, if there is one.
    """

    def __init__(self, reason: str, path: str | os.PathLike[str] | None = None) -> None:
        self.reason, self.path = reason, path
        super().__init__(reason, path)

    def __str__(self) -> str:
        return self.reason if self.path is None else f"{os.fspath(self.path)}: {self.reason}"


class ParametersMissing(MissingError):
    """A required parameter file that does not exist."""


class OutOfMemory(MemoryError):
    """A target that does not fit into a device's memory; the message states requested and free memory."""


class RelaxError(ValueError):
    """A structure that cannot be relaxed; the message is one line."""


class RankMismatch(Exception):
    """Ranks of one run that do not fit together; the message is one line that names a rank and its host."""


class ConfigError(ValueError):
    """A training configuration that cannot be used. Its text is `key: reason`."""


class DataError(ValueError):
    """Training data that cannot be read. Its text is `file: reason`."""


class TrainingDiverged(RuntimeError):
    """Too many consecutive steps had a gradient that was not finite or far too large."""
