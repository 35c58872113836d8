"""Chooses pods of a job by rank, role or name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_status import ENDED
from elasticjob_api.last_words import cause_first, exit_text
from elasticjob_api.meta import Object, ObjectMeta

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.jobs import read
from elasticjob_client.related import pods_of

MAX_RANKS = 100
"""Bound of the ranks in one choice."""
_RANKS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*")
_UNSCHEDULABLE = "PodScheduled"
_FAILED = "Failed"
"""The phase of a refused job, and type and reason of its condition."""
Ranks = Mapping[str, int]
"""Ranks in the present world by the pod's UID; empty if the master does not answer."""


class _ContainerSpec(Object, frozen=True):
    name: str = ""


class _SchedulingGroup(Object, frozen=True):
    pod_group_name: str = ""


class _PodSpec(Object, frozen=True):
    containers: list[_ContainerSpec] = []
    scheduling_group: _SchedulingGroup | None = None


class _Detail(Object, frozen=True):
    """Details of a container's state, or a condition of the pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int = 0


class _State(Object, frozen=True):
    waiting: _Detail | None = None
    running: _Detail | None = None
    terminated: _Detail | None = None


class _Container(Object, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: _State = _State()


class _PodStatus(Object, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: list[_Detail] = []
    init_container_statuses: list[_Container] = []
    container_statuses: list[_Container] = []


class JobPod(Object, frozen=True):
    """The fields of a pod that the client reads."""

    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.metadata.name

    @property
    def role(self) -> str:
        """The role of the member; `master` is the job's master."""
        return self.metadata.labels.get(names.LABEL_ROLE, "")

    @property
    def index(self) -> int:
        """The member's index in its role."""
        text = self.metadata.labels.get(names.LABEL_INDEX, "")
        return int(text) if text.isdigit() else 0

    @property
    def container(self) -> str:
        """The container that trains, or the master's."""
        return self.metadata.main_container([each.name for each in self.spec.containers])

    @property
    def incarnation(self) -> tuple[str, int]:
        """Identifies the container's process: changes at each restart."""
        restarts = self._status.restart_count if self._status else 0
        return self.metadata.uid, restarts

    @property
    def runs(self) -> bool:
        """Whether its container runs."""
        return self._status is not None and self._status.state.running is not None

    @property
    def has_begun(self) -> bool:
        """Whether its container runs or has ended, so that it has a log."""
        return self._status is not None and (self.runs or self._status.state.terminated is not None)

    @property
    def exit_code(self) -> int | None:
        """The exit code of its container; None before the container has ended."""
        ended = self._status.state.terminated if self._status else None
        return None if ended is None else ended.exit_code

    @property
    def why_not_running(self) -> str:
        """Why the pod does not run, in the cluster's words; empty if it runs."""
        status = self.status
        if status.reason:
            return with_reason(status.reason, status.message)
        for each in (*status.init_container_statuses, *status.container_statuses):
            if waiting := each.state.waiting:
                return with_reason(waiting.reason, waiting.message)
            if (ended := each.state.terminated) and ended.exit_code:
                reason = f"{ended.reason or 'Error'}, {exit_text(ended.exit_code)}"
                words = cause_first(ended.message, len(ended.message), ended.exit_code)
                return with_reason(reason, words)
        for condition in status.conditions:
            if condition.type == _UNSCHEDULABLE and condition.status == "False":
                return with_reason(condition.reason, condition.message)
        return ""

    @property
    def in_gang(self) -> bool:
        """Whether Kubernetes' scheduler counts it as one of its PodGroup's pods."""
        ended = self.status.phase in ("Succeeded", "Failed")
        return self.spec.scheduling_group is not None and not ended

    @property
    def waits_for_gang(self) -> bool:
        """Whether the scheduler holds it, without saying so, until more pods of its group exist."""
        seen = any(each.type == _UNSCHEDULABLE for each in self.status.conditions)
        return self.in_gang and self.status.phase == "Pending" and not seen

    @property
    def _status(self) -> _Container | None:
        return next(
            (each for each in self.status.container_statuses if each.name == self.container), None
        )


@dataclass(frozen=True)
class Choice:
    """Chooses pods of a job; without any field, the member with rank 0.

    Attributes:
        ranks: choose the members with these ranks.
        role: choose only pods of this role; `master` is the job's master.
        every: choose all members.
        pod: choose the pod with this name.
    """

    ranks: Sequence[int] = ()
    role: str | None = None
    every: bool = False
    pod: str | None = None

    @property
    def needs_ranks(self) -> bool:
        """Whether the choice depends on the ranks."""
        return bool(self.ranks) or not (self.every or self.role or self.pod)

    def of(self, pods: Iterable[JobPod], ranks: Ranks) -> list[JobPod]:
        """Return the chosen pods in the order of their ranks.

        If no ranks are known, indices replace them.
        """
        if self.pod is not None:
            return [each for each in pods if each.name == self.pod]
        wanted = [each for each in pods if each.role == (self.role or each.role)]
        if self.role != names.ROLE_MASTER:
            wanted = [each for each in wanted if each.role != names.ROLE_MASTER]
        in_order = sorted(
            wanted, key=lambda pod: (ranks.get(pod.metadata.uid, len(ranks)), pod.role, pod.index)
        )
        if not self.needs_ranks:
            return in_order
        chosen = set(self.ranks or (0,))
        if any(each.metadata.uid in ranks for each in wanted):
            return [each for each in in_order if ranks.get(each.metadata.uid) in chosen]
        if not self.ranks:
            return _last_of_first(in_order)
        return [each for each in in_order if each.index in chosen]

    def missing(self, found: Iterable[JobPod], ranks: Ranks) -> str:
        """Return the chosen ranks, as a text, that no pod in the result of `of` has."""
        present = {ranks.get(each.metadata.uid, each.index) for each in found}
        return ", ".join(str(rank) for rank in self.ranks if rank not in present)


def with_reason(reason: str, message: str) -> str:
    """Return both; a program's message may have many lines."""
    return ": ".join(filter(None, (reason, message)))


def _last_of_first(in_order: Sequence[JobPod]) -> list[JobPod]:
    """Return the first member's running pod, or its latest one; its earlier pods have failed."""
    if not in_order:
        return []
    first = in_order[0]
    same = [each for each in in_order if (each.role, each.index) == (first.role, first.index)]
    return [max(same, key=lambda pod: (pod.runs, pod.metadata.creation_timestamp))]


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks in a text such as 0,3. Raises `WrongArgument`."""
    if not _RANKS.fullmatch(text) or text.count(",") >= MAX_RANKS:
        raise WrongArgument(
            f"ranks {text[:40]!r} are not valid: give at most {MAX_RANKS} numbers, such as 0 or 0,3"
        )
    return tuple(dict.fromkeys(int(part) for part in text.split(",")))


async def job_pods(cluster: Cluster, job: ElasticJob) -> list[JobPod]:
    """Return the pods of a job, the master's included. Raises `ClientError`."""
    return [read(pod, JobPod) for pod in await pods_of(cluster, job)]


async def ranks_of(cluster: Cluster, job: ElasticJob) -> Ranks:
    """Return the ranks of the present world; empty if the master does not answer."""
    if job.status.phase in ENDED:
        return {}
    from elasticjob_client.answers import open_master  # slow: it imports gRPC

    try:
        async with open_master(cluster, job) as master:
            return await master.ranks()
    except ClientError:
        return {}


async def chosen_pods(
    cluster: Cluster, job: ElasticJob, choice: Choice
) -> tuple[list[JobPod], Ranks]:
    """Return the chosen pods, at least one, and the known ranks.

    Raises:
        ClientError: there is no such pod; the message says why.
    """
    pods = await job_pods(cluster, job)
    ranks = await ranks_of(cluster, job) if pods else {}
    if found := choice.of(pods, ranks):
        return found, ranks
    raise ClientError(why_none(job, pods, choice))


def why_none(job: ElasticJob, pods: Sequence[JobPod], choice: Choice) -> str:
    """Return why no pod matches a choice."""
    where = f"job {job.metadata.namespace}/{job.metadata.name}"
    members = [each for each in pods if each.role != names.ROLE_MASTER]
    if choice.pod is not None:
        names_of_pods = ", ".join(each.name for each in pods[:8]) or "none"
        return f"{where} has no pod {choice.pod}; it has {names_of_pods}"
    if choice.role is not None and choice.role not in (*job.spec.replica_specs, names.ROLE_MASTER):
        return (
            f"{where} has no role {choice.role}; it has {', '.join(sorted(job.spec.replica_specs))}"
        )
    if not members and _was_refused(job):
        return f"{where} was refused and has had no pods: {' '.join(job.status.message.split())}"
    if not members and job.status.phase in ENDED:
        policy = f"cleanPodPolicy {job.spec.run_policy.clean_pod_policy}"
        end = f"{where} has ended, as {job.status.phase}"
        return f"{end}, and its pods are deleted ({policy}), with their logs"
    if not members:
        return f"{where} has no pods now, as it is {job.status.phase or 'Pending'}"
    none = f"{where} has no member of {_named(choice)} now"
    return f"{none}; it has {len(members)}, `elasticjob query` shows their ranks"


def _was_refused(job: ElasticJob) -> bool:
    """Return whether the job failed before it had a pod, and not because a user stopped it."""
    ends = [each.reason for each in job.status.conditions if each.type == _FAILED]
    return job.status.phase == _FAILED and not job.status.master.incarnations and ends == [_FAILED]


def _named(choice: Choice) -> str:
    role = f"role {choice.role}" if choice.role else ""
    ranks = f"rank {', '.join(map(str, choice.ranks or (0,)))}" if choice.needs_ranks else ""
    return " and ".join(filter(None, (role, ranks)))
