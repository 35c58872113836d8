"""Writes a log as lines for people. Standard library only."""

from __future__ import annotations

import logging
from typing import Any

from elasticjob_api.plain_text import printable


def log_handler(line: str) -> logging.Handler:
    """Return a handler that writes to standard error; `line` is the format of a record.

    A record is one line without control characters; only a traceback has more lines.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter(line))
    return handler


class _PlainFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the formatted line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Return the traceback."""
        return printable(super().formatException(ei), lines=True)
