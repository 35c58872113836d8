"""One pod, from the moment it is bound to this node until it is gone.

Level-triggered: each step looks at the pod as last seen and at its processes, does what is due, and says when it
wants to look again; a change of either wakes it. The status is written when it differs from what was last written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path

from elasticjob_api.times import format_time, parse_time
from elasticjob_kube.errors import Conflict, KubeError, NotFound, Refused
from elasticjob_kube.resources import PODS

from elasticjob_localcluster.node import container_command, probes, service_account
from elasticjob_localcluster.node.addresses import HOST_IP, Identity
from elasticjob_localcluster.node.admission import REASON, has_token, refusal
from elasticjob_localcluster.node.container_logs import Log
from elasticjob_localcluster.node.container_process import ContainerProcess, StartError
from elasticjob_localcluster.node.container_records import Records, outcome
from elasticjob_localcluster.node.context import Host
from elasticjob_localcluster.node.crash_backoff import Backoff
from elasticjob_localcluster.node.environment import ConfigError
from elasticjob_localcluster.node.memory_limits import Watched
from elasticjob_localcluster.node.pod_model import Json, Pod
from elasticjob_localcluster.node.pod_status import (
    Record,
    Running,
    Terminated,
    Verdict,
    Waiting,
    init_policy,
    initialized,
    phase,
    pod_status,
    remembered,
    restarts,
)
from elasticjob_localcluster.node.resize import Conditions, memory_limit, needs_restart, resize
from elasticjob_localcluster.node.status_writer import Reporter
from elasticjob_localcluster.node.volumes import prepare

log = logging.getLogger(__name__)
_RETRY = 1.0
_OVER = ("Succeeded", "Failed")


class PodWorker:
    """Runs one pod."""

    def __init__(self, host: Host, pod: Pod) -> None:
        self.pod = pod
        self.directory = host.directory / "pods" / pod.metadata.uid
        self.processes: dict[str, ContainerProcess] = {}
        now = time.time()
        self._host = host
        self._present = True
        self._wake = asyncio.Event()
        self._due = math.inf
        self._records = Records(
            init=[remembered(pod, container, now=now) for container in pod.init_containers],
            main=[remembered(pod, container, now=now) for container in pod.containers],
        )
        self._started_at: str = pod.status.get("startTime") or format_time(now)
        self._address: str = pod.status.get("podIP") or ""
        self._over = self._over_before = pod.status.get("phase") in _OVER
        self._verdict = None if self._over else self._refusal()
        self._backoffs: dict[str, Backoff] = {}
        self._probes: dict[str, probes.Probing] = {}
        self._unready: dict[str, str] = {}
        self._resize: Conditions = {}
        self._restarting: set[str] = set()
        self._told_of_debugging = False
        self._token_due = 0.0
        self._conditions: dict[str, Json] = {}
        self._reporter = Reporter(host.kube, self.wake)

    @property
    def leaving(self) -> bool:
        """Say whether the pod has ended or is about to."""
        return self._ending or self._over

    @property
    def _ending(self) -> bool:
        return self._verdict is not None or not self._present or self.pod.metadata.deletion_timestamp is not None

    @property
    def given(self) -> list[Json]:
        """Return what the containers have been given, in the form in which a pod's spec asks for it."""
        return [{"resources": record.resources} for record in self._records.main]

    def record(self, name: str) -> Record | None:
        """Return what is known about a container."""
        return next((record for record in self._records if record.name == name), None)

    def log_path(self, name: str, incarnation: int) -> Path:
        """Return where the output of one incarnation of a container is."""
        return self.directory / f"{name}.{incarnation}.log"

    def update(self, pod: Pod | None) -> None:
        """Take the pod as it is now; None when it is no longer there."""
        self._present = pod is not None
        self.pod = pod or self.pod
        if self.pod.spec.get("ephemeralContainers") and not self._told_of_debugging:
            self._told_of_debugging = True
            note = "spec.ephemeralContainers: not started; the pod's processes are this machine's, look at them there"
            self._host.events.warn(self.pod, REASON, "Refusing", note)
        self._wake.set()

    def wake(self) -> None:
        """Look again."""
        self._wake.set()

    async def run(self) -> None:
        """Run the pod until it is gone; cancelled, end its processes at once."""
        try:
            while self._present or self.processes:
                self._wake.clear()
                self._due = math.inf
                self._collect()
                await self._step(time.time())
                self._report(time.time())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if math.isinf(self._due) else max(0.0, self._due - time.time())):
                        await self._wake.wait()
            self._host.addresses.release(self.pod.metadata.uid)
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)
        finally:
            for name, process in self.processes.items():
                self._end_probes(name)
                process.kill()
            self._reporter.cancel()

    # --- deciding ---------------------------------------------------------------------------------------------------

    async def _step(self, now: float) -> None:
        self._check_deadline(now)
        if self._ending:
            await self._end()
        elif not self._over:
            try:
                await self._advance(now)
            except (ConfigError, OSError) as error:
                self._hold_back_pod(str(error))
            except KubeError as error:
                log.warning("pod %s: %s", self.pod.key, error)
                self._at(now + _RETRY)
            self._over = phase(self.pod.restart_policy, self._records.init, self._records.main) in _OVER

    async def _advance(self, now: float) -> None:
        self._take_address()
        if not self.processes:
            prepare(self.pod)
        if has_token(self.pod):
            await self._renew_token(now)
        for container in self.pod.init_containers:
            record = self._records[container["name"]]
            if not initialized([record]):
                await self._bring_up(container, init_policy(self.pod.restart_policy), now)
                return
        self._apply_resize(now)
        for container in self.pod.containers:
            await self._bring_up(container, self.pod.restart_policy, now)

    async def _bring_up(self, container: Json, policy: str, now: float) -> None:
        record = self._records[container["name"]]
        if record.name in self.processes:
            return
        ended = record.ended or (record.last if isinstance(record.state, Waiting) else None)
        if record.ended and not restarts(record.ended, policy):
            return
        backoff = self._backoffs.setdefault(record.name, Backoff())
        if ended and now < backoff.until:
            message = f"back-off {backoff.delay:g}s restarting failed container={record.name} pod={self.pod.key}"
            if record.ended:
                self._host.events.warn(self.pod, "BackOff", "Restarting", message)
            self._records.put(replace(record, state=Waiting("CrashLoopBackOff", message), last=ended))
            self._at(backoff.until)
            return
        await self._start(container, replace(record, last=ended, restarts=record.restarts + (ended is not None)))

    async def _end(self) -> None:
        """Stop what runs; when nothing does, let the API forget a pod that is being deleted."""
        grace = self.pod.grace_seconds if self._present else 1.0
        for name, process in self.processes.items():
            self._end_probes(name)
            process.stop(grace)
        if self.processes or not self._present:
            return
        for record in list(self._records):
            if isinstance(record.state, Waiting) and self._address:
                lost = Terminated(137, "ContainerStatusUnknown", "the container was not running when the pod was ended")
                self._records.put(replace(record, state=record.last or lost, ready=False, started=False))
        if self.pod.metadata.deletion_timestamp is not None:
            await self._say_farewell()

    async def _say_farewell(self) -> None:
        meta = self.pod.metadata
        try:
            if not self._over_before:
                await self._last_words()
            await self._host.kube.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0)
            self._present = False
            self._wake.set()
        except (NotFound, Conflict):
            self._present = False
            self._wake.set()
        except KubeError as error:
            log.warning("pod %s could not be deleted: %s", self.pod.key, error)
            self._at(time.time() + _RETRY)

    async def _last_words(self) -> None:
        try:
            await self._reporter.settle(self.pod, self._status(time.time()))
        except Refused as error:  # asking again would not help, and must not keep the pod for ever
            log.error("the last status of pod %s was refused: %.500s", self.pod.key, error)

    def _refusal(self) -> Verdict | None:
        why = refusal(self.pod, self._host.owner)
        if why is None:
            return None
        if self.pod.metadata.deletion_timestamp is None:
            self._host.events.warn(self.pod, REASON, "Refusing", why)
        return Verdict(REASON, why)

    def _check_deadline(self, now: float) -> None:
        deadline = self.pod.spec.get("activeDeadlineSeconds")
        if deadline is None or self._ending or self._over:
            return
        at = parse_time(self._started_at) + deadline
        if now >= at:
            message = "Pod was active on the node longer than the specified deadline"
            self._verdict = Verdict("DeadlineExceeded", message)
            self._host.events.warn(self.pod, "DeadlineExceeded", "Killing", message)
        self._at(at)

    def _hold_back(self, record: Record, reason: str, message: str) -> None:
        """Say why a container cannot be started now, and try again soon."""
        if not isinstance(record.state, Waiting) or record.state.message != message:
            self._host.events.warn(self.pod, "Failed", "Starting", message)
        self._records.put(replace(record, state=Waiting(reason, message), last=record.ended or record.last))
        self._at(time.time() + _RETRY)

    def _hold_back_pod(self, message: str) -> None:
        """Say why the pod cannot be started now; what runs of it goes on."""
        for record in self._records:
            if record.name not in self.processes and isinstance(record.state, Waiting):
                self._hold_back(record, "CreateContainerConfigError", message)
                break
        self._at(time.time() + _RETRY)

    def _at(self, moment: float) -> None:
        self._due = min(self._due, moment)

    # --- starting ---------------------------------------------------------------------------------------------------

    async def _start(self, container: Json, record: Record) -> None:
        try:
            command, message_file = await container_command.command(
                self._host,
                self.pod,
                container,
                incarnation=record.restarts,
                address=self._address,
                directory=self.directory,
            )
        except ConfigError as error:
            self._hold_back(self._records[record.name], "CreateContainerConfigError", str(error))
            return
        if self._ending:
            return
        record = replace(record, container_id=f"process://{command.owner}", ready=False, started=False)
        output = Log(self.log_path(record.name, record.restarts))
        try:
            process = ContainerProcess(self._host.reaper, command, output, message_file, self.wake)
        except StartError as error:
            self._fail_start(record, str(error))
            return
        self.processes[record.name] = process
        record = replace(record, state=Running(format_time(process.started_at)))
        self._records.put(self._watch(container, record, process))

    def _fail_start(self, record: Record, message: str) -> None:
        self._host.events.warn(self.pod, "Failed", "Starting", f"Error: {message}")
        now = time.time()
        stamp = format_time(now)
        ended = Terminated(
            128, "StartError", message, started_at=stamp, finished_at=stamp, container_id=record.container_id
        )
        self._records.put(replace(record, state=ended))
        self._backoffs[record.name].crashed(now, lived=0.0)
        self._wake.set()

    def _watch(self, container: Json, record: Record, process: ContainerProcess) -> Record:
        """Begin to look after a started process: memory and probes."""
        name = record.name
        self._host.memory.add(
            Watched(process.pid, lambda: memory_limit(self._records[container["name"]]), process.kill_for_memory)
        )
        target = probes.Target(
            self._address,
            {port["name"]: port["containerPort"] for port in container.get("ports") or () if "name" in port},
            process.command,
            self._host.reaper,
            self._host.http,
        )
        self._records.put(record)
        self._probes[name] = probes.look_after(
            container,
            target,
            started=lambda: self._on_started(container),
            failed=lambda spec, message: self._on_failed(name, spec, message),
            ready=lambda good, message: self._on_readiness(name, good, message),
        )
        return self._records[container["name"]]

    def _on_started(self, container: Json) -> None:
        self._records.put(
            replace(self._records[container["name"]], started=True, ready="readinessProbe" not in container)
        )
        self._wake.set()

    def _on_failed(self, name: str, spec: Json, message: str) -> None:
        process = self.processes.get(name)
        if process is not None:
            self._host.events.warn(self.pod, "Unhealthy", "Killing", f"container {name} failed its probe: {message}")
            process.stop(float(spec.get("terminationGracePeriodSeconds", self.pod.grace_seconds)))
            self._end_probes(name)

    def _on_readiness(self, name: str, good: bool, message: str) -> None:
        record = self.record(name)
        if self._unready.get(name) != message:
            self._unready[name] = message
            if not good:
                self._host.events.warn(self.pod, "Unhealthy", "Probing", f"container {name} is not ready: {message}")
        if record and record.ready != good:
            self._records.put(replace(record, ready=good))
            self._wake.set()

    def _end_probes(self, name: str) -> None:
        if probing := self._probes.pop(name, None):
            probing.cancel()

    # --- what has happened ------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Turn processes that have ended into records."""
        for name, process in list(self.processes.items()):
            if process.exit is None:
                continue
            del self.processes[name]
            self._end_probes(name)
            self._host.memory.remove(process.pid)
            record = self.record(name)
            if record is not None:
                ended = replace(record, state=outcome(self.pod, record, process), ready=False, started=False)
                lived = process.exit.at - process.started_at
                if name in self._restarting and not self._ending:
                    ended = replace(ended, state=Waiting("Resizing"), last=ended.ended)
                else:
                    self._backoffs.setdefault(name, Backoff()).crashed(process.exit.at, lived=lived)
                self._restarting.discard(name)
                self._records.put(ended)

    def _take_address(self) -> None:
        if self._address:
            return
        if self.pod.spec.get("hostNetwork"):
            self._address = HOST_IP
            return
        self._address = self._host.addresses.claim(identity(self.pod), self.pod.metadata.uid, self._host.leaving())

    async def _renew_token(self, now: float) -> None:
        if now >= self._token_due:
            self._token_due = await service_account.provide(self._host.kube, self._host.api, self.pod, self.directory)
        self._at(self._token_due)

    def _apply_resize(self, now: float) -> None:
        before = {record.name: record for record in self._records.main}
        pids = {name: process.pid for name, process in self.processes.items()}
        uid = self.pod.metadata.uid
        self._records.main, self._resize = resize(
            self.pod,
            self._records.main,
            allocatable=self._host.allocatable,
            elsewhere=self._host.requested(uid),
            usage=lambda name: self._host.memory.usage(pids[name]),
        )
        if self._resize:
            self._at(now + _RETRY)
        for container in self.pod.containers:
            name, new = container["name"], {record.name: record.resources for record in self._records.main}
            if name in self.processes and needs_restart(container.get("resizePolicy") or [], before[name], new):
                self._restarting.add(name)
                self.processes[name].stop(self.pod.grace_seconds)

    # --- telling the API --------------------------------------------------------------------------------------------

    def _status(self, now: float) -> Json:
        over = self.pod.metadata.deletion_timestamp is not None and not self.processes
        pod = replace_policy(self.pod, "Never") if over else self.pod
        status = pod_status(
            pod,
            self._records.init,
            self._records.main,
            now=now,
            address=self._address,
            started_at=self._started_at,
            known=self._conditions,
            verdict=self._verdict,
            resize=self._resize,
        )
        self._conditions = {kind["type"]: kind for kind in status["conditions"] if "status" in kind}
        return status

    def _report(self, now: float) -> None:
        if self._present and not self._over_before:
            self._at(self._reporter.report(self.pod, self._status(now), now))


def identity(pod: Pod) -> Identity:
    """Return a pod's name in the network."""
    return Identity(pod.metadata.namespace, pod.spec.get("subdomain", ""), pod.hostname)


def replace_policy(pod: Pod, policy: str) -> Pod:
    """Return the pod with another restart policy: nothing of a pod that is being deleted is started again."""
    return Pod(metadata=pod.metadata, spec=pod.spec | {"restartPolicy": policy}, status=pod.status)
