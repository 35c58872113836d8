"""Writes a line of JSON for each pod and each job that ends (`--ended-log`), for log shippers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec
from elasticjob_api.elasticjob import ElasticJob

from elasticjob_operator.core.ended_records import job_record, pod_record
from elasticjob_operator.core.model.pod import Pod

log = logging.getLogger(__name__)


@dataclass
class EndedLog:
    """Writes the lines to a stream; with None, it writes nothing. `now` returns the time."""

    stream: TextIO | None
    now: Callable[[], float]

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Write a line if the pod has ended by this change.

        A pod that had ended before this process listed it gets another line.
        """
        if self.stream is not None:
            self._write(pod_record(before, after, self.now()))

    def custom_changed(self, before: object, after: object) -> None:
        """Write a line if a job has ended by this change; other custom resources get none."""
        if self.stream is not None:
            old = before if isinstance(before, ElasticJob) else None
            new = after if isinstance(after, ElasticJob) else None
            self._write(job_record(old, new))

    def _write(self, record: dict[str, Any] | None) -> None:
        if record is None or self.stream is None:
            return
        try:
            self.stream.write(msgspec.json.encode(record).decode() + "\n")
            self.stream.flush()
        except (OSError, ValueError) as error:
            log.warning(
                "--ended-log: the standard output cannot be written (%s); no more lines", error
            )
            self.stream = None
