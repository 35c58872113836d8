"""Detects a second operator, which works on the same jobs with a Lease of its own.

Operators that share a Lease take turns. Two with different Leases both lead, and neither may read
the other's Lease. So each operator marks the pods that it creates, and looks for other marks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_kube.resources import ELASTIC_JOBS

from elasticjob_operator.core.model.actions import EmitEvent
from elasticjob_operator.core.model.identity import identity_of
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.events import Events, Subject
from elasticjob_operator.job_keys import key_of
from elasticjob_operator.store import Store

log = logging.getLogger(__name__)
_MAX_LEASE_CHARACTERS = 317
"""Of namespace, slash and name. A user can write a longer mark."""


@dataclass
class OtherOperators:
    """Reports each job on which a second operator works, once.

    It writes no condition: the second operator would overwrite it.

    Attributes:
        lease: namespace and name of the Lease of this operator.
    """

    store: Store
    events: Events
    lease: str
    _earlier_pods: frozenset[str] = frozenset()

    def begin(self, pods: Iterable[Pod]) -> None:
        """Take the pods that exist when this operator begins to lead as those of a predecessor."""
        self._earlier_pods = frozenset(pod.metadata.uid for pod in pods if self._other_lease(pod))

    def inspect(self, job: ElasticJob) -> None:
        """Report a later pod of the job that carries the mark of a second operator."""
        uid = job.metadata.uid
        if uid in self.store.shared_jobs:
            return
        for lease, pods in self.store.pods.by_operator(identity_of(job)).items():
            if lease in ("", self.lease):
                continue
            later = next((pods[each] for each in pods if each not in self._earlier_pods), None)
            if later is not None:
                self.store.shared_jobs.add(uid)
                self._report(job, later, lease)
                return

    def _other_lease(self, pod: Pod) -> str:
        """Return the mark of a pod if it is not this operator's own; empty if the pod has none."""
        lease = pod.metadata.annotations.get(names.ANNOTATION_OPERATOR, "")
        return "" if lease == self.lease else lease

    def _report(self, job: ElasticJob, pod: Pod, lease: str) -> None:
        where = str(key_of(job))
        note = (
            f"the operator of Lease {lease[:_MAX_LEASE_CHARACTERS]} has created pod {pod.name}, "
            f"and the operator of Lease {self.lease} works on this job, too: a member may get two "
            "pods at the same time; remove one of the two operators"
        )
        log.error("%s: %s", where, note, extra={"job": where, "member": pod.name})
        event = EmitEvent("AnotherOperator", note, warning=True)
        self.events.emit_about(Subject.of(ELASTIC_JOBS, job.metadata), event)
