"""Simulates kubelets, the garbage collector and agents, which react after random delays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    NODES,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    VOLUME_CLAIMS,
    Resource,
)

from tests.support.simulator.fake_kube import FakeKube
from tests.support.simulator.random_jobs import NODE_PROBLEM
from tests.support.simulator.raw_objects import (
    claims_of,
    excluded_nodes,
    has_agent,
    is_live,
    is_terminating,
    owners,
)
from tests.support.simulator.script_runs import ScriptRuns

OWNERS = (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)
RESIZE_RESULTS = ("InForce", "InForce", "InForce", "Deferred", "Infeasible", "Error", "Ignored")
POD_ENDS: tuple[tuple[str, int, str], ...] = (
    ("Failed", 1, "Error"), ("Failed", 137, "Error"), ("Failed", 137, "OOMKilled"),
    ("Failed", 143, "Error"), ("Failed", 3, "Error"), ("Failed", 139, "Error"),
    ("Evicted", 137, "Error"), ("Lost", 0, ""),
)  # fmt: skip


class ClusterReactions:
    """Starts, drains, resizes and ends pods, and injects faults until `stop_faults` is called.

    Attributes:
        on_lost_node: names of pods on lost nodes, which do not terminate.
        undisturbed: whether the faults have stopped.
        speed: factor of all delays while faults are injected.
        unschedulable_rate: probability that a pod is not scheduled.
        ignored_drains: probability that an agent does not get the command to drain.
        finishing_rate: probability that a pod's training ends by itself.
    """

    def __init__(self, kube: FakeKube, rng: random.Random, note: Callable[..., None]) -> None:
        self.kube = kube
        self.rng = rng
        self.note = note
        self.on_lost_node: set[str] = set()
        self.undisturbed = False
        self.speed = rng.choice((0.2, 1.0, 5.0))
        self.unschedulable_rate = rng.choice((0.0, 0.0, 0.3))
        self.ignored_drains = rng.choice((0.0, 0.2, 1.0))
        self.finishing_rate = rng.choice((0.0, 0.0, 0.02))
        self.resize_results = rng.choice((("InForce",), RESIZE_RESULTS))
        self.scripts = ScriptRuns(kube, rng, note)
        self._collection_scheduled = False
        self._drains_handled: set[tuple[str, str]] = set()

    async def create_nodes(self) -> None:
        for number in range(4):
            await self.kube.create(
                NODES, None, {"metadata": {"name": f"node-{number}"}, "spec": {}, "status": {}}
            )

    # --- reactions ---

    def on_change(self, kind: str, resource: Resource, name: str, raw: bytes) -> None:
        if resource is PODS:
            if kind == "ADDED":
                self._after_random_delay(self._start, name, _uid(raw))
            elif b'"deletionTimestamp"' in raw and kind == "MODIFIED":
                self._after_random_delay(self._end_terminating, name, _uid(raw))
            elif kind == "MODIFIED":
                self._on_resize(name, raw)
        elif resource is SCALE_PLANS and b'"Draining"' in raw:
            self._drain(raw)
        elif resource is SCALE_PLANS and b'"script"' in raw and kind == "MODIFIED":
            self.scripts.on_plan(raw)
        elif resource is VOLUME_CLAIMS and b'"deletionTimestamp"' in raw:
            self._collect_soon()
        if (
            (kind == "DELETED" and resource in OWNERS)
            or (b'"ownerReferences"' in raw and kind == "ADDED")
            or (resource is ELASTIC_JOBS and b'"deletionTimestamp"' in raw)
        ):
            self._collect_soon()

    def _after_random_delay(self, what: Callable[..., None], *args: Any) -> None:
        self._after(
            self.rng.random() ** 2 * (1.0 if self.undisturbed else 5.0 * self.speed), what, *args
        )

    def _after(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, what, *args)

    def _pod(self, name: str, uid: str) -> Json | None:
        pod = self.kube.objects.get((PODS, name))
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _start(self, name: str, uid: str) -> None:
        pod = self._pod(name, uid)
        if pod is None or is_terminating(pod) or pod["status"].get("phase") != "Pending":
            return
        excluded = excluded_nodes(pod)
        nodes = [node["metadata"]["name"] for node in self.kube.all(NODES) if not node["spec"]]
        nodes = [node for node in nodes if node not in excluded]
        if not nodes or (self.rng.random() < self.unschedulable_rate and not self.undisturbed):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes",
            }
            if pod["status"].get("conditions") != [condition]:
                self.kube.set_status(PODS, name, conditions=[condition])
            self._after(30.0, self._start, name, uid)
            return
        pod["spec"]["nodeName"] = self.rng.choice(nodes)
        resources = pod["spec"]["containers"][0].get("resources", {})
        running = [
            {
                "name": pod["spec"]["containers"][0]["name"],
                "resources": resources,
                "state": {"running": {}},
            }
        ]
        self.kube.set_status(
            PODS, name, phase="Running", conditions=[], podIP="10.0.0.1", containerStatuses=running
        )
        self._after_random_delay(self._get_ready, name, uid)

    def _get_ready(self, name: str, uid: str) -> None:
        pod = self._pod(name, uid)
        if pod is not None and not is_terminating(pod) and pod["status"].get("phase") == "Running":
            self.kube.set_status(PODS, name, conditions=[{"type": "Ready", "status": "True"}])
            rate = self.finishing_rate if has_agent(pod) else 10 * self.finishing_rate
            if self.rng.random() < rate and not self.undisturbed:
                self._after(
                    self.rng.uniform(1, 100), self.end, name, uid, "Succeeded", 0, "Completed"
                )

    def _end_terminating(self, name: str, uid: str) -> None:
        if name in self.on_lost_node or self._pod(name, uid) is None:
            return
        if self.rng.random() < 0.3:
            end = ("Failed", names.EXIT_DRAINED, "Error")
            self.end(
                name,
                uid,
                *(
                    end
                    if has_agent(self.kube.objects[PODS, name])
                    else ("Succeeded", 0, "Completed")
                ),
            )
            self._after_random_delay(self._remove, name, uid)
        else:
            self._remove(name, uid)

    def _remove(self, name: str, uid: str) -> None:
        if self._pod(name, uid) is not None:
            self.kube.remove(PODS, name)

    def _drain(self, raw: bytes) -> None:
        """Let the master send the drain command to the agents of the plan's draining pods.

        Each agent stops after a delay, or misses the command.
        """
        plan = msgspec.json.decode(raw)
        if plan.get("status", {}).get("phase") != "Draining":
            return
        for name in plan["status"].get("drainingPods", ()):
            pod = self.kube.objects.get((PODS, name))
            if pod is None or (name, plan["metadata"]["uid"]) in self._drains_handled:
                continue
            self._drains_handled.add((name, plan["metadata"]["uid"]))
            if self.undisturbed or self.rng.random() >= self.ignored_drains:
                code = 0 if self.rng.random() < self.finishing_rate else names.EXIT_DRAINED
                phase = "Failed" if code else "Succeeded"
                self._after_random_delay(
                    self.end,
                    name,
                    pod["metadata"]["uid"],
                    phase,
                    code,
                    "Error" if code else "Completed",
                )

    def _on_resize(self, name: str, raw: bytes) -> None:
        pod = msgspec.json.decode(raw)
        reported = pod["status"].get("containerStatuses") or [{}]
        asked = pod["spec"]["containers"][0].get("resources")
        if pod["status"].get("phase") == "Running" and reported[0].get("resources", asked) != asked:
            self._after_random_delay(self._resize, name, pod["metadata"]["uid"])

    def _resize(self, name: str, uid: str) -> None:
        pod = self._pod(name, uid)
        if pod is None or pod["status"].get("phase") != "Running":
            return
        container = pod["spec"]["containers"][0]
        if pod["status"]["containerStatuses"][0].get("resources") == container.get("resources", {}):
            return
        how = self.rng.choice(self.resize_results)
        kept = [
            c for c in pod["status"].get("conditions", ()) if not c["type"].startswith("PodResize")
        ]
        self.note("kubelet: resize of", name, "is", how)
        if how == "InForce":
            running = [
                {
                    "name": container["name"],
                    "resources": container.get("resources", {}),
                    "state": {"running": {}},
                }
            ]
            self.kube.set_status(PODS, name, containerStatuses=running, conditions=kept)
        elif how != "Ignored":
            kind = "PodResizeInProgress" if how == "Error" else "PodResizePending"
            said = {"type": kind, "status": "True", "reason": how, "message": "node has too little"}
            if said not in pod["status"].get("conditions", ()):
                self.kube.set_status(PODS, name, conditions=[*kept, said])

    def _collect_soon(self) -> None:
        if not self._collection_scheduled:
            self._collection_scheduled = True
            self._after(self.rng.uniform(0, 8), self._collect)

    def _collect(self) -> None:
        """Delete the objects whose owners are all deleted, as the garbage collector does."""
        self._collection_scheduled = False
        alive = {
            owner["metadata"]["uid"]
            for kind in OWNERS
            for owner in self.kube.all(kind)
            if kind is not ELASTIC_JOBS or not is_terminating(owner) or _is_kept(owner)
        }
        for (resource, name), item in list(self.kube.objects.items()):
            if not owners(item) or (resource is PODS and is_terminating(item)):
                continue
            if any(owner["uid"] in alive for owner in owners(item)):
                continue
            if resource is PODS:
                self.kube.mark_deleted(PODS, name)
            else:
                self.kube.remove(resource, name)
        self._collect_claims()
        for job in self.kube.all(ELASTIC_JOBS):
            if not is_terminating(job) or _is_kept(job):
                continue
            uid = job["metadata"]["uid"]
            if any(
                owner["uid"] == uid for item in self.kube.objects.values() for owner in owners(item)
            ):
                self._collect_soon()
            else:
                self.kube.remove(ELASTIC_JOBS, job["metadata"]["name"])

    def _collect_claims(self) -> None:
        """Remove the terminating claims that no pod uses."""
        used = {name for pod in self.kube.all(PODS) if is_live(pod) for name in claims_of(pod)}
        for claim in self.kube.all(VOLUME_CLAIMS):
            if is_terminating(claim) and claim["metadata"]["name"] in used:
                self._collect_soon()
            elif is_terminating(claim):
                self.kube.remove(VOLUME_CLAIMS, claim["metadata"]["name"])

    # --- faults ---

    async def disturb_pods(self) -> None:
        """Let random pods fail, vanish, lose their node, be deleted or become unready."""
        rng = self.rng
        pods = [pod for pod in self.kube.all(PODS) if owners(pod) and is_live(pod)]
        if not pods:
            return
        victims = rng.sample(pods, min(len(pods), rng.choice((1, 1, 1, 2, 9))))
        number = rng.random()
        for pod in victims:
            name = pod["metadata"]["name"]
            uid = pod["metadata"]["uid"]
            if number < 0.5:
                phase, code, reason = rng.choice(POD_ENDS)
                self.note("cluster: end of", name, phase, code, reason)
                self.end(name, uid, phase, code, reason)
            elif number < 0.6:
                self.note("cluster: vanishing of", name)
                self.kube.remove(PODS, name)
            elif number < 0.7:
                self.note("cluster: the node of", name, "is lost")
                self.on_lost_node.add(name)
                if rng.random() < 0.5 and not is_terminating(pod):
                    self.kube.mark_deleted(PODS, name)
            elif number < 0.8 and not is_terminating(pod):
                self.note("user: deletion of", name)
                self.kube.mark_deleted(PODS, name)
            elif number < 0.83 and not is_terminating(pod):
                self.note("cluster: eviction of", name, "is announced")
                target = {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                }
                self.kube.set_status(
                    PODS, name, conditions=[*pod["status"].get("conditions", ()), target]
                )
                self._after(rng.uniform(0, 60), self._evict, name, uid)
            elif number < 0.88 and "nodeName" in pod["spec"]:
                self._announce_node_removal(pod["spec"]["nodeName"])
            elif number < 0.92 and pod["status"].get("phase") == "Running":
                self.kube.set_status(PODS, name, conditions=[])
                self._after(rng.uniform(1, 30), self._get_ready, name, uid)
            elif number >= 0.92 and "nodeName" in pod["spec"]:
                self._announce_node_problem(pod["spec"]["nodeName"])

    def _announce_node_problem(self, node: str) -> None:
        """Set a condition that jobs may name on one node, or sometimes on all nodes.

        The condition may be removed later, or stay.
        """
        everywhere = self.rng.random() < 0.2
        for name in (
            [each["metadata"]["name"] for each in self.kube.all(NODES)] if everywhere else [node]
        ):
            self._set_node_problem(name, "True")
            for _ in range(self.rng.choice((0, 1, 1, 3))):
                self._after(
                    self.rng.uniform(1, 120),
                    self._set_node_problem,
                    name,
                    self.rng.choice(("False", "True")),
                )

    def _set_node_problem(self, node: str, status: str) -> None:
        condition = {"type": NODE_PROBLEM, "status": status}
        said = self.kube.objects[NODES, node]["status"].get("conditions", ())
        if any(each["status"] == status for each in said):
            return
        self.note("cluster:", node, NODE_PROBLEM, "is", status)
        if self.rng.random() < 0.9:
            condition["lastTransitionTime"] = format_time(asyncio.get_running_loop().time())
        self.kube.set_status(NODES, node, conditions=[condition])

    def _evict(self, name: str, uid: str) -> None:
        pod = self._pod(name, uid)
        if pod is not None and not is_terminating(pod):
            self.kube.mark_deleted(PODS, name)

    def _announce_node_removal(self, node: str) -> None:
        """Cordon or taint a node as if it were about to go; later it goes, or stays after all."""
        taint = {
            "key": self.rng.choice(("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"))
        }
        self.note("cluster:", node, "is leaving")
        leaving = self.rng.choice(({"unschedulable": True}, {"taints": [taint]}))
        self.kube.edit(NODES, node, lambda spec: spec.update(leaving))
        self._after(self.rng.uniform(1, 120), self._end_node_removal, node)

    def _end_node_removal(self, node: str) -> None:
        if not self.undisturbed and self.rng.random() < 0.5:
            self.note("cluster:", node, "goes with its pods")
            for pod in self.kube.all(PODS):
                if pod["spec"].get("nodeName") == node:
                    self.kube.remove(PODS, pod["metadata"]["name"])
        if self.kube.objects[NODES, node]["spec"]:
            self.kube.edit(NODES, node, lambda spec: spec.clear())

    def end(self, name: str, uid: str, phase: str, code: int, reason: str) -> None:
        """End the containers of a pod."""
        pod = self._pod(name, uid)
        if pod is None or not is_live(pod):
            return
        if phase == "Lost":
            self.kube.set_status(
                PODS, name, phase="Failed", reason="NodeLost", conditions=[], containerStatuses=[]
            )
            return
        evicted = phase == "Evicted"
        terminated = {
            "exitCode": code,
            "reason": reason,
            "message": self.rng.choice(("", "out of luck")),
        }
        first = pod["spec"]["containers"][0]["name"]
        self.kube.set_status(
            PODS,
            name,
            phase="Failed" if evicted else phase,
            reason="Evicted" if evicted else "",
            conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "Eviction"}]
            if evicted
            else [],
            containerStatuses=[{"name": first, "state": {"terminated": terminated}}],
        )

    def stop_faults(self) -> None:
        """Let every pod start, become ready, and terminate when it is deleted from now on."""
        self.undisturbed = True
        self.on_lost_node = set()
        self.ignored_drains = 0.0
        for node in self.kube.all(NODES):
            self._end_node_removal(node["metadata"]["name"])
        for pod in self.kube.all(PODS):
            if not owners(pod):
                continue
            name = pod["metadata"]["name"]
            uid = pod["metadata"]["uid"]
            if is_terminating(pod):
                self._after_random_delay(self._remove, name, uid)
            elif pod["status"].get("phase") == "Pending":
                self._after_random_delay(self._start, name, uid)
            elif pod["status"].get("phase") == "Running":
                self._after_random_delay(self._get_ready, name, uid)


def _is_kept(item: Json) -> bool:
    return bool(item["metadata"].get("finalizers"))


def _uid(raw: bytes) -> str:
    uid: str = msgspec.json.decode(raw)["metadata"]["uid"]
    return uid
