"""Writes a line of JSON for each pod and each job that has ended, for those who ship logs (`--ended-log`)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec
from elasticjob_api.elasticjob import ElasticJob

from elasticjob_operator.core.ended_records import job_record, pod_record
from elasticjob_operator.core.model.observed import Pod

log = logging.getLogger(__name__)


@dataclass
class EndedLog:
    """Writes to a stream, or, with None, nowhere."""

    stream: TextIO | None

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Write a line if a pod has ended by this change.

        One that is listed as ended may have a line already.
        """
        if self.stream is not None:
            self._write(pod_record(before, after, time.time()))

    def custom_changed(self, before: object, after: object) -> None:
        """Write a line if a job has ended by this change; other custom resources have none."""
        if self.stream is not None:
            jobs = [
                custom if isinstance(custom, ElasticJob) else None for custom in (before, after)
            ]
            self._write(job_record(*jobs))

    def _write(self, record: dict[str, Any] | None) -> None:
        if record is None or self.stream is None:
            return
        try:
            self.stream.write(msgspec.json.encode(record).decode() + "\n")
            self.stream.flush()
        except (OSError, ValueError) as error:
            log.warning(
                "--ended-log: nobody reads the standard output any more (%s); no more lines", error
            )
            self.stream = None
