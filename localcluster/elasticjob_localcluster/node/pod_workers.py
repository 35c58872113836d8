"""Keeps a worker for each pod of the node, from its binding to its deletion."""

from __future__ import annotations

import asyncio
import logging
import shutil
from decimal import Decimal

from elasticjob_localcluster.node.addresses import HOST_IP
from elasticjob_localcluster.node.context import NodeContext
from elasticjob_localcluster.node.pod_containers import RETRY_SECONDS
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.pod_worker import PodWorker, network_identity
from elasticjob_localcluster.node.resize import total

log = logging.getLogger(__name__)


class PodWorkers:
    """The workers by pod UID."""

    def __init__(self) -> None:
        self.workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._context: NodeContext | None = None

    def start(self, context: NodeContext) -> None:
        """Set the context, which refers to methods of this object."""
        self._context = context

    def on_pod_change(self, before: Pod | None, after: Pod | None) -> None:
        """Handle a change of a pod that is bound to this node."""
        assert self._context is not None
        pod = after or before
        assert pod is not None
        uid = pod.metadata.uid
        worker = self.workers.get(uid)
        if worker is not None:
            worker.update(after)
        elif after is not None:
            self._begin(after)

    def _begin(self, pod: Pod, pause: float = 0.0) -> None:
        assert self._context is not None
        self._adopt_address(pod)
        uid = pod.metadata.uid
        self.workers[uid] = worker = PodWorker(self._context, pod)
        self._tasks[uid] = task = asyncio.create_task(worker.run(pause), name=pod.key)
        task.add_done_callback(lambda done: self._done(uid, done))

    def write_again(self) -> None:
        """Write the status of every pod again: the storage may have lost it."""
        for worker in self.workers.values():
            worker.write_again()

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """Return the worker of a pod by its name; of two with the same name, the later."""
        found = [
            worker for worker in self.workers.values() if worker.pod.key == f"{namespace}/{name}"
        ]
        return found[-1] if found else None

    def finished_or_terminating(self) -> set[str]:
        """Return the UIDs of the ended or ending pods."""
        return {uid for uid, worker in self.workers.items() if worker.finished_or_terminating}

    def allocated_to_others(self, uid: str) -> dict[str, Decimal]:
        """Return the CPU and memory allocated to all live pods but one, without pending resizes."""
        others = [
            worker
            for key, worker in self.workers.items()
            if key != uid and not worker.finished_or_terminating
        ]
        return {
            name: sum(
                (total(worker.containers.allocated, "requests", name) for worker in others),
                Decimal(0),
            )
            for name in ("cpu", "memory")
        }

    def remove_orphaned_directories(self) -> None:
        """Remove the directories of pods that no longer exist."""
        assert self._context is not None
        root = self._context.directory / "pods"
        for directory in root.iterdir() if root.is_dir() else ():
            if directory.name not in self.workers:
                shutil.rmtree(directory, ignore_errors=True)

    async def stop(self) -> None:
        """End every worker and its processes."""
        workers = self.workers.values()
        processes = [
            process for worker in workers for process in worker.containers.processes.values()
        ]
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(100):
            if all(process.exit for process in processes):
                return
            await asyncio.sleep(0.05)
        log.warning("some processes did not end")

    def _adopt_address(self, pod: Pod) -> None:
        address = pod.status.get("podIP")
        if address and address != HOST_IP and self._context is not None:
            self._context.addresses.adopt(network_identity(pod), address, pod.metadata.uid)

    def _done(self, uid: str, task: asyncio.Task[None]) -> None:
        worker = self.workers.pop(uid)
        del self._tasks[uid]
        if task.cancelled():
            return
        if error := task.exception():
            log.error("pod %s: its worker ended by a fault", worker.pod.key, exc_info=error)
        # No further event may come, and without a worker nobody would confirm the deletion.
        if worker.exists:
            self._begin(worker.pod, RETRY_SECONDS if error else 0.0)
