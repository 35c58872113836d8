"""A log of JSON has a line for each record, with job, plan and member as fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from elasticjob_api.json_log import json_log_handler


def line(level: int, text: str, *given: object, exc_info: Any = None, **extra: str) -> Any:
    record = logging.LogRecord("elasticjob_x", level, "f.py", 1, text, given, exc_info)
    vars(record).update(extra)
    text = json_log_handler(job="ns/job").format(record)
    assert "\n" not in text
    assert text.isascii()
    assert text.isprintable()
    return json.loads(text)


def test_a_record_has_time_severity_and_the_fields_that_it_concerns() -> None:
    found = line(logging.WARNING, "%s is lost", "job-worker-1", member="job-worker-1", plan="p")
    assert found.pop("timestamp").endswith("+00:00")
    assert found == {
        "message": "job-worker-1 is lost",
        "severity": "warn",
        "logger": "elasticjob_x",
        "job": "ns/job",
        "plan": "p",
        "member": "job-worker-1",
    }
    assert "member" not in line(logging.INFO, "ready")


def test_a_text_of_a_user_and_a_traceback_stay_in_their_line() -> None:
    hostile = '\x1b[31m"\n{"severity": "fatal"}\u2028'
    try:
        raise ValueError(hostile)
    except ValueError:
        found = line(logging.ERROR, "bad: %s", hostile, exc_info=sys.exc_info())
    assert found["message"] == f"bad: {hostile}"
    assert found["severity"] == "error"
    assert "ValueError" in found["exc_info"]
