"""Records the objects of a cluster, and the facts about earlier states that invariants need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS, Resource

from tests.support.simulator.raw_objects import belongs_to_other_job

MAX_STALE_SECONDS = 120.0
"""The longest time for which the operator may act on an outdated state.

It is longer than any delay of a watch.
"""


class RecordedHistory:
    """All present objects, and facts about earlier states of jobs, members, pods and plans."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.objects: dict[Resource, dict[str, Json]] = defaultdict(dict)
        self.names: dict[str, set[str]] = defaultdict(set)
        self.live: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self.plan_of_request: dict[str, str] = {}
        self.executed: dict[str, str] = {}
        self.suspended_at: dict[str, float] = {}
        self.lowest_min_replicas: dict[tuple[str, str], int] = {}
        self.highest_max_replicas: dict[tuple[str, str], int] = {}
        self.tampered: set[str] = set()
        """UIDs of pods whose labels were edited."""
        self.was_ready: set[tuple[str, str, str]] = set()
        self.ended_by_itself: set[tuple[str, str, str]] = set()
        """Members with a pod that succeeded without having been terminated."""
        self.known_to_run: dict[str, frozenset[str]] = {}
        """By a plan's UID: the UIDs of the pods that the operator observed as running when it chose
        those to drain. While its watch is broken it does not know the others; SIGTERM drains them.
        """
        self.deleted_claims: set[str] = set()
        """Names of volume claims that a user has deleted."""
        self.scripts_allowed_at: dict[str, float] = {}
        self.has_cluster_rules = False
        self.cancelled: list[tuple[float, Json]] = []
        self.failures: dict[tuple[str, str], int] = defaultdict(int)
        self.losses: dict[tuple[str, str], int] = defaultdict(int)

    def widen_bounds(self, uid: str, role: str, least: int, most: int) -> None:
        """Record the bounds of a role: the lowest and the highest that it ever had."""
        key = uid, role
        self.lowest_min_replicas[key] = min(least, self.lowest_min_replicas.get(key, least))
        self.highest_max_replicas[key] = max(most, self.highest_max_replicas.get(key, most))

    def job_with(self, uid: str | None) -> Json | None:
        return next((job for job in self.all(ELASTIC_JOBS) if job["metadata"]["uid"] == uid), None)

    def all(self, resource: Resource) -> list[Json]:
        return list(self.objects[resource].values())

    def may_be_suspended(self, uid: str) -> bool:
        """Return whether the operator may still observe the job as suspended.

        The operator undoes the running plan of a suspended job.
        """
        return self.now() - self.suspended_at.get(uid, 0.0) < MAX_STALE_SECONDS

    def plans_of(self, uid: str) -> list[Json]:
        job = self.job_with(uid)
        recent = [plan for when, plan in self.cancelled if self.now() - when < MAX_STALE_SECONDS]
        plans = [*self.all(SCALE_PLANS), *recent]
        return [
            p
            for p in plans
            if job
            and p["spec"]["jobName"] == job["metadata"]["name"]
            and not belongs_to_other_job(p, uid)
        ]
