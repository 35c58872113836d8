"""Injects the faults of a chaos run, and undoes each after its time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob_kube.errors import KubeError

from tests.support.chaos import processes
from tests.support.chaos.cluster import OPERATORS, ChaosCluster
from tests.support.chaos.object_faults import ObjectFaults, pick
from tests.support.chaos.pod_watch import PodWatch, WatchedPod
from tests.support.chaos.schedule import Fault

CLOCK_JUMPS = (-3600, -60, -5, 5, 60, 3600, 86400)
"""Seconds."""
_LASTING = ("freeze", "vanish", "cut", "full", "clock")
"""The faults that last for a time and are then undone; all others are momentary."""
_CONTROL_PLANE = {"api-server": "kube-apiserver", "etcd": "etcd"}


@dataclass
class Faults:
    """Injects faults."""

    cluster: ChaosCluster
    pods: PodWatch
    objects: ObjectFaults

    async def inject(self, fault: Fault) -> None:
        """Inject a fault, record the object that it hit, and undo it after its time."""
        record = self.cluster.record
        verb, _, what = fault.kind.partition("-")
        with contextlib.ExitStack() as undo:
            try:
                await self.objects.copies.refresh()
                hit = await self._start(fault, verb, what, undo)
            except KubeError as error:
                hit = None
                record.write("fault failed", kind=fault.kind, message=str(error))
            record.fault(fault.kind, fault.seconds, hit)
            if hit and verb in _LASTING:
                await asyncio.sleep(fault.seconds)

    async def _start(
        self, fault: Fault, verb: str, what: str, undo: contextlib.ExitStack
    ) -> str | None:
        if verb in ("kill", "freeze"):
            return self._signal(fault, what, freeze=verb == "freeze", undo=undo)
        if verb == "vanish":
            return self._vanish(fault, undo)
        if verb in ("reset", "cut", "silence"):
            return self._network(verb, what, undo)
        if verb == "full":
            return self._fill(what, undo)
        if verb == "clock":
            return self._shift(fault, what, undo)
        if verb == "delete":
            return await self.objects.delete(fault, what)
        return await self.objects.tamper(fault, what)

    def _signal(
        self, fault: Fault, what: str, *, freeze: bool, undo: contextlib.ExitStack
    ) -> str | None:
        pids, name = self._processes(fault, what)
        if not pids:
            return None
        for pid in pids:
            if freeze:
                processes.send(pid, signal.SIGSTOP)
                undo.callback(processes.send, pid, signal.SIGCONT)
            else:
                processes.send(pid, signal.SIGKILL)
        return f"{name} {pids}"

    def _vanish(self, fault: Fault, undo: contextlib.ExitStack) -> str | None:
        pids, name = self._processes(fault, "pod")
        if not pids or self.cluster.packets is None:
            return None
        undo.callback(self.cluster.packets.restore, self.cluster.packets.drop(pids))
        return f"{name} {pids}"

    def _processes(self, fault: Fault, what: str) -> tuple[list[int], str]:
        if what == "operator":
            name = OPERATORS[int(fault.target * len(OPERATORS))]
            return self._alive(name), name
        if what in _CONTROL_PLANE:
            return self._alive(_CONTROL_PLANE[what]), what
        pod, found = self._pod(fault, masters=what == "master")
        if pod is None or found is None:
            return [], ""
        chosen = {
            "master": [found.first],
            "agent": [found.first],
            "training": list(found.others[:1]),
        }
        return chosen.get(what, [found.first, *found.others]), pod.metadata.name

    def _alive(self, name: str) -> list[int]:
        if self.cluster.cluster.children[name].poll() is not None:
            return []
        return [self.cluster.pid(name)]

    def _pod(
        self, fault: Fault, *, masters: bool
    ) -> tuple[WatchedPod | None, processes.PodProcesses | None]:
        of_pods = processes.of_pods()
        running = self.objects.copies.masters() if masters else self.pods.running(masters=False)
        pod = pick([pod for pod in running if pod.metadata.uid in of_pods], fault.target)
        return (pod, of_pods[pod.metadata.uid]) if pod else (None, None)

    def _network(self, verb: str, what: str, undo: contextlib.ExitStack) -> str:
        proxy = self.cluster.proxies[what]
        if verb == "cut":
            proxy.cut()
            undo.callback(proxy.restore)
            return what
        if verb == "reset":
            return f"{proxy.reset()} connections"
        return f"{proxy.freeze()} connections"

    def _fill(self, what: str, undo: contextlib.ExitStack) -> str | None:
        if what == "disk" and self.cluster.tmpfs:
            filler = self.cluster.volume / "filler"
            undo.callback(filler.unlink, missing_ok=True)
            _fill_up(os.open(filler, os.O_CREAT | os.O_WRONLY, 0o600))
            return str(self.cluster.volume)
        pids = self._alive("etcd") if what == "disk-etcd" else list(self._members())
        limited = [pid for pid in pids if limit_files(pid, 0)]
        for pid in limited:
            undo.callback(limit_files, pid, resource.RLIM_INFINITY)
        return f"files of {limited}" if limited else None

    def _members(self) -> Iterator[int]:
        of_pods = processes.of_pods()
        for pod in self.pods.running(masters=False):
            if found := of_pods.get(pod.metadata.uid):
                yield from (found.first, *found.others)

    def _shift(self, fault: Fault, what: str, undo: contextlib.ExitStack) -> str | None:
        if not self.cluster.clock:
            return None
        if what == "operator":
            name = OPERATORS[int(fault.target * len(OPERATORS))]
        else:
            pod, _ = self._pod(fault, masters=what == "master")
            if pod is None:
                return None
            name = pod.metadata.name
        jump = CLOCK_JUMPS[int(fault.choice * len(CLOCK_JUMPS))]
        self.cluster.shift(name, jump)
        undo.callback(self.cluster.shift, name, 0)
        return f"{name} by {jump} s"


def _fill_up(descriptor: int) -> None:
    """Write zeros until the file system is full."""
    try:
        while True:
            os.write(descriptor, bytes(1 << 16))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(descriptor)


def limit_files(pid: int, most: int) -> bool:
    """Limit the size of the files that a process writes; return whether the process exists."""
    with contextlib.suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, hard))
        return True
    return False
