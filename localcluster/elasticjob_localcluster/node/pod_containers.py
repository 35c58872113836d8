"""Starts, probes, restarts, resizes and stops the containers of one pod.

No method waits for a container: each does the work that is due and requests the next wake-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from elasticjob_api.meta import Json
from elasticjob_api.times import format_time

from elasticjob_localcluster.node import probes
from elasticjob_localcluster.node.container_command import container_command
from elasticjob_localcluster.node.container_logs import ContainerLog
from elasticjob_localcluster.node.container_process import ContainerProcess, StartError
from elasticjob_localcluster.node.container_status import (
    ContainerStatus,
    ContainerStatuses,
    CrashLoopBackoff,
    Running,
    Terminated,
    Waiting,
    last_known_status,
    should_restart,
)
from elasticjob_localcluster.node.context import NodeContext
from elasticjob_localcluster.node.environment import ConfigError
from elasticjob_localcluster.node.memory_limits import LimitedProcessTree
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.resize import Conditions, memory_limit, needs_restart, resize
from elasticjob_localcluster.node.wakeup import Wakeup

RETRY_SECONDS = 1.0


class PodContainers:
    """The containers of one pod, with their processes.

    Attributes:
        pod: as last observed; the owner replaces it.
        statuses: the statuses of all containers.
        processes: the running containers by name.
        resize_conditions: the conditions of a resize under way, type to (reason, message).
    """

    def __init__(
        self,
        context: NodeContext,
        pod: Pod,
        directory: Path,
        wakeup: Wakeup,
        is_terminating: Callable[[], bool],
    ) -> None:
        now = time.time()
        self.pod = pod
        self.statuses = ContainerStatuses(
            init=[last_known_status(pod, container, now=now) for container in pod.init_containers],
            main=[last_known_status(pod, container, now=now) for container in pod.containers],
        )
        self.processes: dict[str, ContainerProcess] = {}
        self.resize_conditions: Conditions = {}
        self._context = context
        self._directory = directory
        self._wakeup = wakeup
        self._is_terminating = is_terminating
        self._backoffs: dict[str, CrashLoopBackoff] = {}
        self._probes: dict[str, probes.ContainerProbes] = {}
        self._unready_messages: dict[str, str] = {}
        self._restarting_to_resize: set[str] = set()

    def log_path(self, name: str, incarnation: int) -> Path:
        """Return the log file of one incarnation of a container."""
        return self._directory / f"{name}.{incarnation}.log"

    # --- starting

    async def start_if_due(self, container: Json, policy: str, address: str, now: float) -> None:
        """Start a container that does not run, if its restart policy and its back-off allow it.

        Raises KubeError if the objects of its environment could not be read.
        """
        status = self.statuses[container["name"]]
        if status.name in self.processes:
            return
        last = status.terminated or (
            status.last_terminated if isinstance(status.state, Waiting) else None
        )
        if status.terminated and not should_restart(status.terminated, policy):
            return
        backoff = self._backoffs.setdefault(status.name, CrashLoopBackoff())
        if last and now < backoff.until:
            message = (
                f"back-off {backoff.delay:g}s restarting failed "
                f"container={status.name} pod={self.pod.key}"
            )
            if status.terminated:
                self._context.events.warn(self.pod, "BackOff", "Restarting", message)
            self.statuses.put(
                replace(status, state=Waiting("CrashLoopBackOff", message), last_terminated=last)
            )
            self._wakeup.at(backoff.until)
            return
        restart_count = status.restart_count + (last is not None)
        await self._start(
            container, replace(status, last_terminated=last, restart_count=restart_count), address
        )

    def set_config_error(self, message: str) -> None:
        """Record on the first waiting container why the pod cannot be started now."""
        for status in self.statuses:
            if status.name not in self.processes and isinstance(status.state, Waiting):
                self._set_config_error(status, message)
                break
        self._wakeup.at(time.time() + RETRY_SECONDS)

    def _set_config_error(self, status: ContainerStatus, message: str) -> None:
        """Record why a container cannot be started now, and try again soon."""
        if not isinstance(status.state, Waiting) or status.state.message != message:
            self._context.events.warn(self.pod, "Failed", "Starting", message)
        last = status.terminated or status.last_terminated
        state = Waiting("CreateContainerConfigError", message)
        self.statuses.put(replace(status, state=state, last_terminated=last))
        self._wakeup.at(time.time() + RETRY_SECONDS)

    async def _start(self, container: Json, status: ContainerStatus, address: str) -> None:
        try:
            command, message_file = await container_command(
                self._context,
                self.pod,
                container,
                incarnation=status.restart_count,
                address=address,
                directory=self._directory,
            )
        except ConfigError as error:
            self._set_config_error(self.statuses[status.name], str(error))
            return
        if self._is_terminating():  # since the API server was asked
            return
        status = replace(
            status, container_id=f"process://{command.owner}", ready=False, started=False
        )
        output = ContainerLog(self.log_path(status.name, status.restart_count))
        try:
            process = ContainerProcess(
                self._context.reaper, command, output, message_file, self._wakeup.now
            )
        except StartError as error:
            self._record_start_error(status, str(error))
            return
        self.processes[status.name] = process
        self.statuses.put(replace(status, state=Running(format_time(process.started_at))))
        self._limit_memory(status.name, process)
        self._start_probes(container, process, address)

    def _record_start_error(self, status: ContainerStatus, message: str) -> None:
        self._context.events.warn(self.pod, "Failed", "Starting", f"Error: {message}")
        now = time.time()
        stamp = format_time(now)
        terminated = Terminated(
            128,
            "StartError",
            message,
            started_at=stamp,
            finished_at=stamp,
            container_id=status.container_id,
        )
        self.statuses.put(replace(status, state=terminated))
        self._backoffs[status.name].record_exit(now, ran_for=0.0)
        self._wakeup.now()

    def _limit_memory(self, name: str, process: ContainerProcess) -> None:
        limited = LimitedProcessTree(
            process.pid, lambda: memory_limit(self.statuses[name]), process.kill_for_memory
        )
        self._context.memory.add(limited)

    # --- probes

    def _start_probes(self, container: Json, process: ContainerProcess, address: str) -> None:
        name = container["name"]
        target = probes.ProbeTarget(
            address,
            {
                port["name"]: port["containerPort"]
                for port in container.get("ports") or ()
                if "name" in port
            },
            process.command,
            self._context.reaper,
            self._context.http,
        )
        self._probes[name] = probes.start_probes(
            container,
            target,
            started=lambda: self._on_started(container),
            failed=lambda spec, message: self._on_probe_failure(name, spec, message),
            ready=lambda good, message: self._on_readiness(name, good, message),
        )

    def _on_started(self, container: Json) -> None:
        status = self.statuses[container["name"]]
        self.statuses.put(replace(status, started=True, ready="readinessProbe" not in container))
        self._wakeup.now()

    def _on_probe_failure(self, name: str, spec: Json, message: str) -> None:
        process = self.processes.get(name)
        if process is not None:
            note = f"container {name} failed its probe: {message}"
            self._context.events.warn(self.pod, "Unhealthy", "Killing", note)
            process.stop(float(spec.get("terminationGracePeriodSeconds", self.pod.grace_seconds)))
            self._cancel_probes(name)

    def _on_readiness(self, name: str, good: bool, message: str) -> None:
        status = self.statuses.get(name)
        if self._unready_messages.get(name) != message:
            self._unready_messages[name] = message
            if not good:
                note = f"container {name} is not ready: {message}"
                self._context.events.warn(self.pod, "Unhealthy", "Probing", note)
        if status and status.ready != good:
            self.statuses.put(replace(status, ready=good))
            self._wakeup.now()

    def _cancel_probes(self, name: str) -> None:
        running = self._probes.pop(name, None)
        if running is not None:
            running.cancel()

    # --- termination

    def collect_exits(self) -> None:
        """Record the termination of every process that has ended."""
        for name, process in list(self.processes.items()):
            exit_ = process.exit
            if exit_ is None:
                continue
            del self.processes[name]
            self._cancel_probes(name)
            self._context.memory.remove(process.pid)
            status = self.statuses.get(name)
            if status is not None:
                container = next(
                    c
                    for c in (*self.pod.init_containers, *self.pod.containers)
                    if c["name"] == name
                )
                message = process.message(container.get("terminationMessagePolicy", "File"))
                terminated = process.terminated_state(message, status.container_id)
                status = replace(status, state=terminated, ready=False, started=False)
                if name in self._restarting_to_resize and not self._is_terminating():
                    status = replace(status, state=Waiting("Resizing"), last_terminated=terminated)
                else:
                    backoff = self._backoffs.setdefault(name, CrashLoopBackoff())
                    backoff.record_exit(exit_.at, ran_for=exit_.at - process.started_at)
                self._restarting_to_resize.discard(name)
                self.statuses.put(status)

    def stop(self, grace: float) -> None:
        """Send SIGTERM to all running containers, and SIGKILL after `grace` seconds."""
        for name, process in self.processes.items():
            self._cancel_probes(name)
            process.stop(grace)

    def kill(self) -> None:
        """Kill all running containers at once."""
        for name, process in self.processes.items():
            self._cancel_probes(name)
            process.kill()

    def terminate_waiting(self) -> None:
        """Mark every waiting container of an ending pod as terminated."""
        message = "the container was not running when the pod was ended"
        for status in list(self.statuses):
            if isinstance(status.state, Waiting):
                state = status.last_terminated or Terminated(137, "ContainerStatusUnknown", message)
                self.statuses.put(replace(status, state=state, ready=False, started=False))

    # --- resize

    @property
    def allocated(self) -> list[Json]:
        """The allocated resources of the containers, in the form of a pod's spec."""
        return [{"resources": status.resources} for status in self.statuses.main]

    def resize(self, now: float) -> None:
        """Allocate the resources of the spec if possible; otherwise retry soon."""
        before = {status.name: status for status in self.statuses.main}
        pids = {name: process.pid for name, process in self.processes.items()}
        self.statuses.main, self.resize_conditions = resize(
            self.pod,
            self.statuses.main,
            allocatable=self._context.allocatable,
            allocated_to_others=self._context.allocated_to_others(self.pod.metadata.uid),
            usage=lambda name: self._context.memory.usage(pids[name]),
        )
        if self.resize_conditions:
            self._wakeup.at(now + RETRY_SECONDS)
        allocated = {status.name: status.resources for status in self.statuses.main}
        for container in self.pod.containers:
            name = container["name"]
            if name in self.processes and needs_restart(
                container.get("resizePolicy") or [], before[name], allocated
            ):
                self._restarting_to_resize.add(name)
                self.processes[name].stop(self.pod.grace_seconds)
