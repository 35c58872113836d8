"""Watches all pods of a chaos run.

No member may ever have two live pods, whatever their labels say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    name: str
    resource_version: str
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Container(msgspec.Struct, frozen=True):
    env: list[_Variable] = []


class _Spec(msgspec.Struct, frozen=True):
    containers: list[_Container] = []


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = "Pending"
    conditions: list[_Condition] = []


class WatchedPod(msgspec.Struct):
    """A pod, identified by its immutable part: the variables that name its member."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def live(self) -> bool:
        """Return whether it may run, now or later."""
        return self.status.phase not in ("Succeeded", "Failed")

    @property
    def running(self) -> bool:
        """Return whether it runs."""
        return self.status.phase == "Running"

    @property
    def ready(self) -> bool:
        """Return whether its readiness probe succeeds."""
        return _Condition("Ready", "True") in self.status.conditions

    @property
    def member(self) -> tuple[str, str, str]:
        """Return UID of the job, role and index; the master's index is empty."""
        variables = {
            one.name: one.value for container in self.spec.containers for one in container.env
        }
        return (
            variables.get(names.ENV_JOB_UID, ""),
            variables.get(names.ENV_ROLE, names.ROLE_MASTER),
            variables.get(names.ENV_INDEX, ""),
        )

    @property
    def is_master(self) -> bool:
        """Return whether it is a job's master."""
        return self.member[1] == names.ROLE_MASTER


class PodWatch:
    """The last known states of all pods."""

    def __init__(self, kube: Kube, namespace: str, finding: Callable[[str], None]) -> None:
        self._finding = finding
        self._pods: dict[str, WatchedPod] = {}
        self._informer = Informer(
            kube, PODS, WatchedPod, namespace=namespace, on_change=self._on_change
        )
        self.seen = 0
        """The number of changes."""
        self.uids: set[str] = set()
        """The UIDs of all pods that ever existed."""

    async def run(self) -> Any:
        """Watch until cancelled."""
        await self._informer.run()

    def running(self, *, masters: bool) -> list[WatchedPod]:
        """Return the running masters, or the running members, by name."""
        found = [pod for pod in self._pods.values() if pod.running and pod.is_master == masters]
        return sorted(found, key=lambda pod: pod.metadata.name)

    def _on_change(self, before: WatchedPod | None, after: WatchedPod | None) -> None:
        self.seen += 1
        pod = after or before
        assert pod is not None
        if after is None:
            self._pods.pop(pod.metadata.uid, None)
            return
        self._pods[pod.metadata.uid] = after
        self.uids.add(pod.metadata.uid)
        twins = [
            one.metadata.name
            for one in self._pods.values()
            if one.live and one.member == after.member
        ]
        if after.live and len(twins) > 1 and (before is None or not before.live):
            self._finding(f"two live pods of one member: {', '.join(sorted(twins))}")
