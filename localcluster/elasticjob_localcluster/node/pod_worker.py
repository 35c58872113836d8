"""Runs one pod, from its binding to this node until its deletion.

It is level-triggered: each pass compares the observed pod with its processes, acts, and requests
its next wake-up; a change of either wakes it. The status is written when it has changed.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time

from elasticjob_api.meta import Json
from elasticjob_api.times import format_time, parse_time
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.resources import PODS

from elasticjob_localcluster.node import service_account
from elasticjob_localcluster.node.addresses import HOST_IP, NetworkIdentity
from elasticjob_localcluster.node.admission import REASON, has_token, rejection
from elasticjob_localcluster.node.container_status import init_restart_policy, initialized
from elasticjob_localcluster.node.context import NodeContext
from elasticjob_localcluster.node.environment import ConfigError
from elasticjob_localcluster.node.pod_containers import RETRY_SECONDS, PodContainers
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.pod_status import PodFailure, pod_phase, pod_status
from elasticjob_localcluster.node.status_writer import PodStatusWriter
from elasticjob_localcluster.node.volumes import (
    prepare_folders,
    prepare_host_paths,
    state_folder,
)
from elasticjob_localcluster.node.wakeup import Wakeup

log = logging.getLogger(__name__)
_FINISHED = ("Succeeded", "Failed")


class PodWorker:
    """Runs one pod, which it knows as last observed."""

    def __init__(self, context: NodeContext, pod: Pod) -> None:
        self.pod = pod
        self._context = context
        self._directory = context.directory / "pods" / pod.metadata.uid
        self._wakeup = Wakeup()
        self.containers = PodContainers(
            context, pod, self._directory, self._wakeup, lambda: self._terminating
        )
        self.exists = True
        self._started_at: str = pod.status.get("startTime") or format_time(time.time())
        self._address: str = pod.status.get("podIP") or ""
        self._mounted = False
        self._mount_error = ""
        self._finished = self._finished_before = pod.status.get("phase") in _FINISHED
        self._failure = None if self._finished else self._admit()
        self._warned_of_ephemeral_containers = False
        self._token_due = 0.0
        self._conditions: dict[str, Json] = {}
        self._status_writer = PodStatusWriter(context.kube, self._wakeup.now)

    @property
    def address(self) -> str:
        """The pod's address, or an empty text if it has none yet."""
        return self._address

    @property
    def finished_or_terminating(self) -> bool:
        """Whether the pod has ended or is ending."""
        return self._terminating or self._finished

    @property
    def _terminating(self) -> bool:
        return (
            self._failure is not None
            or not self.exists
            or self.pod.metadata.deletion_timestamp is not None
        )

    def update(self, pod: Pod | None) -> None:
        """Replace the observed pod; None if it no longer exists."""
        self.exists = pod is not None
        self.pod = self.containers.pod = pod or self.pod
        if self.pod.spec.get("ephemeralContainers") and not self._warned_of_ephemeral_containers:
            self._warned_of_ephemeral_containers = True
            note = (
                "spec.ephemeralContainers: not started; "
                "the pod's processes run on this machine, where you can inspect them"
            )
            self._context.events.warn(self.pod, REASON, "Refusing", note)
        self._wakeup.now()

    def write_again(self) -> None:
        """Write the pod's status again, although it has not changed."""
        self._status_writer.forget()
        self._wakeup.now()

    async def run(self, pause: float = 0.0) -> None:
        """Run the pod until it no longer exists; when cancelled, kill its processes at once.

        `pause`: the seconds before that.
        """
        try:
            await asyncio.sleep(pause)
            while self.exists or self.containers.processes:
                self._wakeup.reset()
                self.containers.collect_exits()
                await self._sync(time.time())
                self._report_status(time.time())
                await self._wakeup.wait()
            self._context.addresses.release(self.pod.metadata.uid)
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        finally:
            self.containers.kill()
            self._status_writer.cancel()
            self._remove_state()

    # --- running

    async def _sync(self, now: float) -> None:
        self._check_deadline(now)
        if self._terminating:
            await self._terminate()
        elif not self._finished:
            try:
                await self._run_containers(now)
            except (ConfigError, OSError) as error:
                self.containers.set_config_error(str(error))
            except KubeError as error:
                log.warning("pod %s: %s", self.pod.key, error)
                self._wakeup.at(now + RETRY_SECONDS)
            statuses = self.containers.statuses
            self._finished = (
                pod_phase(self.pod.restart_policy, statuses.init, statuses.main) in _FINISHED
            )
            if self._finished:
                await asyncio.to_thread(self._remove_state)

    def _remove_state(self) -> None:
        in_memory = state_folder(self._context.node_id, self.pod.metadata.uid)
        shutil.rmtree(in_memory, ignore_errors=True)

    async def _run_containers(self, now: float) -> None:
        """Start the due containers: init containers one after the other, then all others."""
        self._claim_address()
        if not self.containers.processes and not await self._mount():
            self._wakeup.at(now + RETRY_SECONDS)
            return
        if has_token(self.pod):
            await self._renew_token(now)
        policy = self.pod.restart_policy
        for container in self.pod.init_containers:
            if not initialized([self.containers.statuses[container["name"]]]):
                await self.containers.start_if_due(
                    container, init_restart_policy(policy), self._address, now
                )
                return
        self.containers.resize(now)
        for container in self.pod.containers:
            await self.containers.start_if_due(container, policy, self._address, now)

    async def _mount(self) -> bool:
        """Prepare the volumes; return False, and report why by an event, if one cannot be."""
        try:
            prepare_host_paths(self.pod)
            await prepare_folders(self._context, self.pod, self._directory)
        except (ConfigError, OSError) as error:
            if str(error) != self._mount_error:
                self._mount_error = str(error)
                self._context.events.warn(self.pod, "FailedMount", "Mounting", str(error))
            return False
        self._mounted = True
        return True

    def _admit(self) -> PodFailure | None:
        """Return the failure of a pod that cannot run on this node."""
        why = rejection(self.pod, self._context.user)
        if why is None:
            return None
        if self.pod.metadata.deletion_timestamp is None:
            self._context.events.warn(self.pod, REASON, "Refusing", why)
        return PodFailure(REASON, why)

    def _check_deadline(self, now: float) -> None:
        deadline = self.pod.spec.get("activeDeadlineSeconds")
        if deadline is None or self.finished_or_terminating:
            return
        at = parse_time(self._started_at) + deadline
        if now >= at:
            message = "Pod was active on the node longer than the specified deadline"
            self._failure = PodFailure("DeadlineExceeded", message)
            self._context.events.warn(self.pod, "DeadlineExceeded", "Killing", message)
        self._wakeup.at(at)

    def _claim_address(self) -> None:
        if self._address:
            return
        if self.pod.spec.get("hostNetwork"):
            self._address = HOST_IP
            return
        leaving = self._context.finished_or_terminating()
        self._address = self._context.addresses.claim(
            network_identity(self.pod), self.pod.metadata.uid, leaving
        )

    async def _renew_token(self, now: float) -> None:
        if now >= self._token_due:
            context = self._context
            self._token_due = await service_account.write_token(
                context.kube, context.api, self.pod, self._directory
            )
        self._wakeup.at(self._token_due)

    # --- termination

    async def _terminate(self) -> None:
        """Stop the containers; when none runs, confirm the pod's deletion."""
        self.containers.stop(self.pod.grace_seconds if self.exists else 1.0)
        if self.containers.processes or not self.exists:
            return
        if self._address:
            self.containers.terminate_waiting()
        if self.pod.metadata.deletion_timestamp is not None:
            await self._confirm_deletion()

    async def _confirm_deletion(self) -> None:
        """Write the last status, then delete the pod without a grace period, as a kubelet does."""
        meta = self.pod.metadata
        try:
            if not self._finished_before:
                await self._write_last_status()
            await self._context.kube.delete(
                PODS, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0
            )
            self.exists = False
            self._wakeup.now()
        except NotFound:
            self.exists = False
            self._wakeup.now()
        except KubeError as error:
            log.warning("pod %s could not be deleted: %s", self.pod.key, error)
            self._wakeup.at(time.time() + RETRY_SECONDS)

    async def _write_last_status(self) -> None:
        try:
            await self._status_writer.write_now(self.pod, self._status(time.time()))
        except Refused as error:  # a retry would be refused too and would keep the pod for ever
            log.error("the last status of pod %s was refused: %.500s", self.pod.key, error)

    # --- status

    def _status(self, now: float) -> Json:
        deleted = self.pod.metadata.deletion_timestamp is not None and not self.containers.processes
        # No container of a pod that is being deleted is restarted.
        pod = with_restart_policy(self.pod, "Never") if deleted else self.pod
        status = pod_status(
            pod,
            self.containers.statuses.init,
            self.containers.statuses.main,
            now=now,
            address=self._address,
            mounted=self._mounted,
            started_at=self._started_at,
            known=self._conditions,
            failure=self._failure,
            resize=self.containers.resize_conditions,
        )
        self._conditions = {kind["type"]: kind for kind in status["conditions"] if "status" in kind}
        return status

    def _report_status(self, now: float) -> None:
        if self.exists and not self._finished_before:
            self._wakeup.at(self._status_writer.write_if_due(self.pod, self._status(now), now))


def network_identity(pod: Pod) -> NetworkIdentity:
    """Return a pod's name in the network."""
    return NetworkIdentity(pod.metadata.namespace, pod.spec.get("subdomain", ""), pod.hostname)


def with_restart_policy(pod: Pod, policy: str) -> Pod:
    """Return the pod with another restart policy."""
    return Pod(metadata=pod.metadata, spec=pod.spec | {"restartPolicy": policy}, status=pod.status)
