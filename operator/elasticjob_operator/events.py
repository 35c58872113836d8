"""Reports what has happened to jobs and plans: in the log, and as Events of Kubernetes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.times import format_micro_time
from elasticjob_kube.errors import KubeError
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    EVENTS,
    MAX_EVENT_NOTE_BYTES,
    SCALE_PLANS,
    Resource,
)
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model.actions import EmitEvent

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """The object of an event or a condition."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, metadata: ObjectMeta) -> Subject:
        """Return the subject with this metadata."""
        return cls(resource, metadata.namespace, metadata.name, metadata.uid)


@dataclass(frozen=True)
class Events:
    """Sends Events in the background, each once. `identity` names this process."""

    kube: Kube
    identity: str
    _sending: set[asyncio.Task[None]] = field(default_factory=set)

    def emit(self, job: ElasticJob, event: EmitEvent) -> None:
        """Log an event of the job, and send it in the background for the job and for its plan."""
        where = f"{job.metadata.namespace}/{job.metadata.name}"
        level = logging.WARNING if event.warning else logging.INFO
        # A note may contain the output of programs, which must not look like lines of this log.
        note = " ".join(event.note.split())
        log.log(
            level,
            "%s: %s: %s",
            where,
            event.reason,
            note,
            extra={"job": where, "reason": event.reason},
        )
        for resource, metadata in ((ELASTIC_JOBS, job.metadata), (SCALE_PLANS, event.plan)):
            if metadata is not None:
                self.emit_about(Subject.of(resource, metadata), event)

    def emit_about(self, subject: Subject, event: EmitEvent) -> None:
        """Send an Event for an object in the background; an error is logged."""
        task = asyncio.create_task(self._send(subject.namespace, self._body(subject, event)))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def flush(self) -> None:
        """Wait until all Events have been sent."""
        await asyncio.gather(*self._sending)

    async def _send(self, namespace: str, body: dict[str, Any]) -> None:
        try:
            await self.kube.create(EVENTS, namespace, body)
        except KubeError as error:
            log.info("event %s was not sent: %s", body["reason"], error)

    def _body(self, subject: Subject, event: EmitEvent) -> dict[str, Any]:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"generateName": f"{subject.name[:200]}-", "namespace": subject.namespace},
            "eventTime": format_micro_time(self.kube.clock.now()),
            "reportingController": f"{names.GROUP}/{names.OPERATOR}",
            "reportingInstance": self.identity[:128],
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:MAX_EVENT_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {
                "apiVersion": subject.resource.api_version,
                "kind": subject.resource.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
        }
