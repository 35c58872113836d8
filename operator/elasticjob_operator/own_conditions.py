"""Conditions that say what the operator itself cannot do: read an object, or reconcile a job.

They are not part of a decision, since there is none. Each type is applied by a field manager of its
own, so that no other condition is touched, and taken back by applying nothing, also by a later
process of the operator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, Literal

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Condition
from elasticjob_api.times import format_time
from elasticjob_kube.errors import Conflict, KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model.actions import EmitEvent
from elasticjob_operator.events import Events, Subject
from elasticjob_operator.work_queue import Retry, WorkQueue, retry_after

log = logging.getLogger(__name__)
Kind = Literal["Unreadable", "ReconcileFailed"]
_MAX_CHARACTERS = 1000
_MAX_REMEMBERED = 10_000
"""Conditions that hold; of more, the oldest is written and reported once more when it is found
again.
"""


class OwnConditions:
    """Writes these conditions in the background, each with an event when it begins to hold or changes."""

    def __init__(self, kube: Kube, events: Events) -> None:
        self._kube = kube
        self._events = events
        self._holding: dict[tuple[Subject, Kind], tuple[str, str]] = {}
        self.writes: WorkQueue[tuple[Subject, Kind]] = WorkQueue(self._write)

    def hold(self, subject: Subject, kind: Kind, reason: str, message: str) -> None:
        """Write a condition that holds from now on, unless it is written already."""
        found = (reason, message[:_MAX_CHARACTERS])
        if self._holding.get((subject, kind)) == found:
            return
        self._holding[subject, kind] = found
        if len(self._holding) > _MAX_REMEMBERED:
            del self._holding[next(iter(self._holding))]
        self._events.emit_about(subject, EmitEvent(kind, found[1], warning=True))
        self.writes.add((subject, kind))

    def clear(self, subject: Subject, kind: Kind, present: Iterable[Condition]) -> None:
        """Take a condition back that does not hold any more, if it is among those of the object or being written."""
        if self._holding.pop((subject, kind), None) or any(
            condition.type == kind for condition in present
        ):
            self.writes.add((subject, kind))

    def reconciled(self, job: ElasticJob, error: BaseException | None) -> None:
        """Note how reconciling a job has ended.

        What is tried again says itself why; any other error is a bug.
        """
        metadata = job.metadata
        subject = Subject(ELASTIC_JOBS, metadata.namespace, metadata.name, metadata.uid)
        if error is None:
            self.clear(subject, "ReconcileFailed", job.status.conditions)
        elif not isinstance(error, Retry):
            what = f"the operator cannot work on this job, and tries again with growing pauses: {error!r}"
            self.hold(subject, "ReconcileFailed", type(error).__name__, what)

    async def _write(self, key: tuple[Subject, Kind]) -> None:
        """Write the condition as it is now.

        Raises:
            Retry: the API server has not taken it.
        """
        subject, kind = key
        body: dict[str, Any] = {
            "apiVersion": subject.resource.api_version,
            "kind": subject.resource.kind,
            "metadata": {"name": subject.name, "uid": subject.uid},
        }
        if (found := self._holding.get(key)) is not None:
            reason, message = found
            now = format_time(time.time())
            condition = {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            body["status"] = {"conditions": [condition]}
        try:
            await self._kube.apply(
                subject.resource,
                subject.namespace,
                subject.name,
                body,
                field_manager=f"{names.OPERATOR}-{kind.lower()}",
                subresource="status",
            )
        except (NotFound, Conflict):
            self._holding.pop(key, None)  # it is gone, perhaps followed by another of its name
        except KubeError as error:
            raise retry_after(error) from error
