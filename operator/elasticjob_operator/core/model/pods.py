"""The pods of one job, with the groups and sets that decisions need.

A decision follows every change of a pod, and a job may have 10,000 of them. So it must not look at
each pod: almost all run as they should. The store keeps these groups up to date pod by pod, and a
decision looks at the few pods of a group, and at sets of indices as a whole. Nothing else changes
them: for a decision they are a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticjob_api.indices import IndexSet, is_index

from elasticjob_operator.core.model.pod import Pod

_Group = dict[str, Pod]
"""Pods by UID."""


@dataclass
class RolePods:
    """The pods of one role; a member may have none, or two for a time.

    Attributes:
        by_index: the pods of each index.
        strays: the pods whose index is beyond those that a member can have. They are in none of the
            sets.
        present: the indices with a pod.
        live: the indices with a pod that has not finished.
        ready: the indices with a ready pod.
        shared: the indices with more than one pod.
        ending: the pods that have ended or are being deleted, or whose training has ended.
        pending: the pods of phase Pending that are not being deleted.
        later: the pods that are not the first of their index.
        active_count: the number of pods that have not finished and are not being deleted.
        ready_count: the number of ready pods.
        live_count: the number of pods that have not finished.
    """

    by_index: dict[int, tuple[Pod, ...]] = field(default_factory=dict)
    strays: _Group = field(default_factory=dict)
    present: IndexSet = field(default_factory=IndexSet)
    live: IndexSet = field(default_factory=IndexSet)
    ready: IndexSet = field(default_factory=IndexSet)
    shared: IndexSet = field(default_factory=IndexSet)
    ending: _Group = field(default_factory=dict)
    pending: _Group = field(default_factory=dict)
    later: _Group = field(default_factory=dict)
    active_count: int = 0
    ready_count: int = 0
    live_count: int = 0

    def __iter__(self) -> Iterator[Pod]:
        return (pod for pods in self.by_index.values() for pod in pods)

    def at(self, index: int) -> tuple[Pod, ...]:
        """Return the pods of an index."""
        return self.by_index.get(index, ())

    def of_members(self, members: IndexSet) -> Iterator[Pod]:
        """Yield the pods of these members."""
        return (pod for index in members & self.present for pod in self.by_index[index])

    @property
    def highest_index(self) -> int:
        """The highest index of a pod; -1 if there is no pod."""
        return max([self.present.highest, *(pod.index for pod in self.strays.values())])

    @property
    def incarnations(self) -> int:
        """The highest number in a pod's name that makes it new; 0 if there is none."""
        return max((pod.incarnation for pod in self.later.values()), default=0)

    def add(self, pod: Pod) -> None:
        """Add a pod."""
        self.by_index[pod.index] = (*self.at(pod.index), pod)
        self._count(pod, 1)
        for group in self._groups_of(pod):
            group[pod.metadata.uid] = pod
        self._update_sets(pod.index)

    def remove(self, pod: Pod) -> None:
        """Remove a pod."""
        _remove(self.by_index, pod.index, pod)
        self._count(pod, -1)
        for group in self._groups_of(pod):
            del group[pod.metadata.uid]
        self._update_sets(pod.index)

    def copy(self) -> RolePods:
        """Return a copy that can be changed."""
        return replace(
            self,
            by_index=self.by_index.copy(),
            strays=self.strays.copy(),
            ending=self.ending.copy(),
            pending=self.pending.copy(),
            later=self.later.copy(),
        )

    def _count(self, pod: Pod, sign: int) -> None:
        self.active_count += sign * (not pod.finished and not pod.terminating)
        self.ready_count += sign * pod.ready
        self.live_count += sign * (not pod.finished)

    def _groups_of(self, pod: Pod) -> list[_Group]:
        groups = []
        if pod.finished or pod.terminating or pod.training_ended or pod.failed:
            groups.append(self.ending)
        if pod.status.phase == "Pending" and not pod.terminating:
            groups.append(self.pending)
        if pod.incarnation > 0:
            groups.append(self.later)
        if not is_index(pod.index):
            groups.append(self.strays)
        return groups

    def _update_sets(self, index: int) -> None:
        if not is_index(index):
            return
        pods = self.at(index)
        self.present = self.present.with_index(index, present=bool(pods))
        self.live = self.live.with_index(index, present=any(not each.finished for each in pods))
        self.ready = self.ready.with_index(index, present=any(each.ready for each in pods))
        self.shared = self.shared.with_index(index, present=len(pods) > 1)


class Pods:
    """The pods of one job.

    Attributes:
        roles: the pods of each role that has some; the master's, too.
        by_name: the pods by name. No two exist at a time, but the end of one may be seen late.
        by_node: the pods of each node, by UID.
        disrupted: the pods with the condition DisruptionTarget, by UID.
    """

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self.roles: dict[str, RolePods] = {}
        self.by_name: dict[str, tuple[Pod, ...]] = {}
        self.by_node: dict[str, _Group] = {}
        self.disrupted: _Group = {}
        for pod in pods:
            self.add(pod)

    def __iter__(self) -> Iterator[Pod]:
        return (pod for pods in self.by_name.values() for pod in pods)

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def of(self, role: str) -> RolePods:
        """Return the pods of one role."""
        return self.roles.get(role) or RolePods()

    def named(self, names: Iterable[str]) -> Iterator[Pod]:
        """Yield the pods with these names."""
        return (pod for name in names for pod in self.by_name.get(name, ()))

    def of_members(self, members: Mapping[str, IndexSet]) -> Iterator[Pod]:
        """Yield the pods of these members per role."""
        return (
            pod for role, indices in members.items() for pod in self.of(role).of_members(indices)
        )

    @property
    def live_count(self) -> int:
        """The number of pods that have not finished."""
        return sum(pods.live_count for pods in self.roles.values())

    @property
    def ending(self) -> list[Pod]:
        """The pods that have ended or are being deleted, or whose training has ended."""
        return [pod for pods in self.roles.values() for pod in pods.ending.values()]

    @property
    def pending(self) -> list[Pod]:
        """The pods of phase Pending that are not being deleted."""
        return [pod for pods in self.roles.values() for pod in pods.pending.values()]

    def add(self, pod: Pod) -> None:
        """Add a pod."""
        self.roles.setdefault(pod.role, RolePods()).add(pod)
        self.by_name[pod.name] = (*self.by_name.get(pod.name, ()), pod)
        if node := pod.spec.node_name:
            self.by_node.setdefault(node, {})[pod.metadata.uid] = pod
        if pod.condition("DisruptionTarget") is not None:
            self.disrupted[pod.metadata.uid] = pod

    def remove(self, pod: Pod) -> None:
        """Remove a pod."""
        role = self.roles[pod.role]
        role.remove(pod)
        if not role.by_index:
            del self.roles[pod.role]
        _remove(self.by_name, pod.name, pod)
        if node := pod.spec.node_name:
            del self.by_node[node][pod.metadata.uid]
            if not self.by_node[node]:
                del self.by_node[node]
        self.disrupted.pop(pod.metadata.uid, None)

    def without(self, pods: Iterable[Pod]) -> Pods:
        """Return the pods without some of them; `self` does not change."""
        removed = list(pods)
        if not removed:
            return self
        rest = Pods()
        rest.roles = self.roles.copy()
        rest.by_name = self.by_name.copy()
        rest.by_node = self.by_node.copy()
        rest.disrupted = self.disrupted.copy()
        for role in {pod.role for pod in removed}:
            rest.roles[role] = rest.roles[role].copy()
        for node in {pod.spec.node_name for pod in removed} - {""}:
            rest.by_node[node] = rest.by_node[node].copy()
        for pod in removed:
            rest.remove(pod)
        return rest


def _remove(pods: dict[Any, tuple[Pod, ...]], key: object, pod: Pod) -> None:
    if others := tuple(each for each in pods[key] if each is not pod):
        pods[key] = others
    else:
        del pods[key]
