"""Logging to stderr: plain lines for people, one JSON object a line for machines."""

import json
import logging
import sys
import time

from tqdm import tqdm

logger = logging.getLogger("foldcli")


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time (UTC, ISO 8601), level, message, and what `extra={"fields": …}` held."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return json.dumps(entry | getattr(record, "fields", {}))


class TextFormatter(logging.Formatter):
    """The message; warnings and errors say that they are."""

    def format(self, record: logging.LogRecord) -> str:
        mark = f"foldcli: {record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return mark + record.getMessage()


class StderrHandler(logging.Handler):
    """Writes to stderr without tearing a progress bar that is being drawn there."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def configure(quiet: bool = False, verbose: bool = False, log_json: bool = False) -> None:
    """Send the logger of foldcli to stderr.

    Args:
        quiet: warnings and errors only.
        verbose: debug lines too.
        log_json: JSON lines instead of text.
    """
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter() if log_json else TextFormatter())
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)


def as_json() -> bool:
    """Whether messages are JSON lines, between which nothing else belongs."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers)
