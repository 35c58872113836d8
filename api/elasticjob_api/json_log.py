"""Writes a log as lines of JSON, with the fields by which one searches the logs of many jobs.

Operator and master write the same form. Standard library only.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]
FIELDS = ("job", "plan", "member")
"""The fields that a record has if its caller names them by `extra`: a job as namespace/name, a
ScalePlan and a member's pod by their names.
"""
_SEVERITIES = {"WARNING": "warn", "CRITICAL": "fatal"}


def json_log_handler(**fixed: str) -> logging.Handler:
    """Return a handler that writes to standard error; each line has the fixed fields."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter(fixed))
    return handler


class _JsonFormatter(logging.Formatter):
    def __init__(self, fixed: dict[str, str]) -> None:
        super().__init__()
        self._fixed = fixed

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of ASCII, so that no text of a user controls a terminal."""
        line = {
            "message": record.getMessage(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "severity": _SEVERITIES.get(record.levelname, record.levelname.lower()),
            "logger": record.name,
            **self._fixed,
        }
        named = ((field, getattr(record, field, None)) for field in FIELDS)
        line |= {field: value for field, value in named if value is not None}
        if record.exc_info:
            line["exc_info"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
