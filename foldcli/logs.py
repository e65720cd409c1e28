"""Logging to stderr: plain lines for people, or one JSON object per line for programs."""

import contextlib
import functools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

logger = logging.getLogger("foldcli")

# maximum number of unusable structure files that the log names
_MAX_LOGGED_FILES = 20
# all control characters but tab and line feed
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@functools.lru_cache(1024)
def warn_once(text: str, version: int | None = None) -> None:
    """Log a warning, unless this process has logged it before; `version` tells equal warnings apart."""
    logger.warning("%s", text)


def escape_control_characters(text: str) -> str:
    """Escape control characters, so that a terminal shows them instead of obeying them."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


class JsonFormatter(logging.Formatter):
    """A formatter that writes each record as one JSON object.

    Its keys are time (UTC, ISO 8601), level and message, plus those of `extra={"fields": …}`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return json.dumps(entry | getattr(record, "fields", {}))


class TextFormatter(logging.Formatter):
    """A formatter that shows the message, with the level in front of warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        prefix = f"foldcli: {record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return prefix + escape_control_characters(record.getMessage())


class StderrHandler(logging.Handler):
    """A handler that writes to stderr without breaking up a progress bar that is drawn there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        # without a progress bar, tqdm is not imported, which would delay every command
        bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
        write = print if bar is None else bar.write
        # a message that cannot be written ends no run
        with contextlib.suppress(OSError):
            write(self.format(record), file=sys.stderr)


def configure(quiet: bool = False, verbose: bool = False, log_json: bool = False) -> None:
    """Send the messages of foldcli's logger to stderr.

    Args:
        quiet: show warnings and errors only.
        verbose: also show debug messages.
        log_json: write JSON lines instead of text.
    """
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter() if log_json else TextFormatter())
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)


def logs_json() -> bool:
    """Return True if stderr is a stream of JSON lines, into which nothing else may be written."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers)


def seconds_since_start() -> float:
    """Return the seconds since the system started this process, early imports included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def log_time_since_start(event: str) -> None:
    """Log, with -v, how long after the start of the process something has happened."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %.2f s after the start", event, seconds_since_start())


def warn_unusable_files(
    reasons: Mapping[str, str], library: str, remarks: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Name structure files that could not be used or were changed, at most 20 of each."""
    notes = [f"{path}: {'; '.join(lines)}" for path, lines in (remarks or {}).items()]
    for note in notes[:_MAX_LOGGED_FILES]:
        logger.warning("%s", note)
    if (more := len(notes) - _MAX_LOGGED_FILES) > 0:
        logger.warning("%d more files with remarks: see %s/manifest.json", more, library)
    for path, reason in list(reasons.items())[:_MAX_LOGGED_FILES]:
        logger.warning("%s: %s; not used", path, reason)
    if (more := len(reasons) - _MAX_LOGGED_FILES) > 0:
        logger.warning("%d more files not used: see foldcli library info %s", more, library)
