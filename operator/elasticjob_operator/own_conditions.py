"""Conditions for the operator's own failures: it cannot read an object, or reconcile a job.

No decision contains them, because in these cases there is none. Each type has its own field
manager, so that applying it changes no other condition. Applying nothing removes it, which a later
process of the operator can do as well.
"""

from __future__ import annotations

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

Kind = Literal["Unreadable", "ReconcileFailed"]
_MAX_CHARACTERS = 1000
_MAX_REMEMBERED = 10_000
"""The number of present conditions that are kept. A forgotten one is written and reported once more
when its failure happens again.
"""


class OwnConditions:
    """Writes these conditions in the background, with an event when one appears or changes."""

    def __init__(self, kube: Kube, events: Events) -> None:
        self._kube = kube
        self._events = events
        self._present: dict[tuple[Subject, Kind], tuple[str, str]] = {}
        self.writes: WorkQueue[tuple[Subject, Kind]] = WorkQueue(self._write)

    def set(self, subject: Subject, kind: Kind, reason: str, message: str) -> None:
        """Set a condition, unless it is set already."""
        found = (reason, message[:_MAX_CHARACTERS])
        if self._present.get((subject, kind)) == found:
            return
        self._present[subject, kind] = found
        if len(self._present) > _MAX_REMEMBERED:
            del self._present[next(iter(self._present))]
        self._events.emit_about(subject, EmitEvent(kind, found[1], warning=True))
        self.writes.add((subject, kind))

    def clear(self, subject: Subject, kind: Kind, present: Iterable[Condition]) -> None:
        """Remove a condition, if the object has it or this process has set it."""
        was_set = self._present.pop((subject, kind), None) is not None
        if was_set or any(condition.type == kind for condition in present):
            self.writes.add((subject, kind))

    def reconciled(self, job: ElasticJob, error: BaseException | None) -> None:
        """Set or remove a job's ReconcileFailed after it was reconciled.

        A `Retry` is not a failure of the operator; any other error is a bug.
        """
        subject = Subject.of(ELASTIC_JOBS, job.metadata)
        if error is None:
            self.clear(subject, "ReconcileFailed", job.status.conditions)
        elif not isinstance(error, Retry):
            message = (
                f"the operator cannot reconcile this job, and retries with back-off: {error!r}"
            )
            self.set(subject, "ReconcileFailed", type(error).__name__, message)

    async def _write(self, key: tuple[Subject, Kind]) -> None:
        """Apply the present state of a condition.

        Raises:
            Retry: the API server has not accepted it.
        """
        subject, kind = key
        body: dict[str, Any] = {
            "apiVersion": subject.resource.api_version,
            "kind": subject.resource.kind,
            "metadata": {"name": subject.name, "uid": subject.uid},
        }
        if (found := self._present.get(key)) is not None:
            reason, message = found
            now = format_time(self._kube.clock.now())
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
            self._present.pop(key, None)  # the object is deleted; another may have its name
        except KubeError as error:
            raise retry_after(error) from error
