"""Random actions of users and other controllers, valid and invalid, with every part of the API."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SERVICES,
    VOLUME_CLAIMS,
    Resource,
)

from tests.support.simulator.cluster import JOB, NAMESPACE
from tests.support.simulator.fake_kube import FakeKube, copied
from tests.support.simulator.random_jobs import node_conditions, random_job, random_rule
from tests.support.simulator.raw_objects import (
    FINISHED_JOB_PHASES,
    is_live,
    is_terminating,
    owners,
    pod_index,
    pod_role,
)


class Users:
    """All clients that write to the cluster, except the operator and the simulated cluster."""

    def __init__(self, kube: FakeKube, rng: random.Random, note: Callable[..., None]) -> None:
        self.kube = kube
        self.rng = rng
        self.note = note
        self._applied = 0
        self._body = random_job(rng)
        self._roles: list[str] = list(self._body["spec"]["replicaSpecs"])
        self._edits_rules = rng.random() < 0.3
        self._valid_status: Json | None = None
        self._invalid_roles: Json = {}

    async def apply_job(self) -> None:
        if (ELASTIC_JOBS, JOB) not in self.kube.objects:
            self.note("user: apply the job", self._body["spec"]["runPolicy"])
            await self.kube.create(ELASTIC_JOBS, NAMESPACE, self._body)

    async def act(self) -> None:
        """Do one random action; if no job runs, this is most often to start one."""
        if self.rng.random() < 0.5 and await self._ensure_running_job():
            return
        job = self.kube.objects.get((ELASTIC_JOBS, JOB), {})
        if job.get("status", {}).get("currentPlan") and self.rng.random() < 0.1:
            self._edit_replicas()
            return
        acts: tuple[tuple[float, Callable[[], Any]], ...] = (
            (3, self._scale_out), (3, self._scale_in), (6, self._scale_plan),
            (4, self._edit_replicas), (0.4, self._edit_bounds), (0.8, self._suspend),
            (3, self._resume), (0.1, self._stop), (1.5, self._cancel), (0.2, self._delete_job),
            (1, self._release_job), (3, self.apply_job), (0.5, self._occupy_name),
            (0.5, self._replace_with_copy), (0.2, self._unknown_job), (0.7, self._edit_labels),
            (0.3, self._edit_counters), (0.7, self._write_invalid_status),
            (1.5, self._correct_status),
            (0.5, self._delete_failed_pod), (0.4, self._edit_policy), (0.4, self._delete_claim),
            (0.5 * self._edits_rules, self._edit_rules),
        )  # fmt: skip
        (act,) = self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])
        done = act()
        if done is not None:
            await done

    async def _ensure_running_job(self) -> bool:
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        if job is None:
            await self.apply_job()
        elif job.get("status", {}).get("phase") in FINISHED_JOB_PHASES and not is_terminating(job):
            self._delete_job()
        elif job["spec"]["runPolicy"].get("suspend"):
            self._resume()
        else:
            return False
        return True

    def stop_faults(self) -> None:
        """Remove other objects with the job's names, correct its status, and often resume it."""
        self._correct_status()
        for (resource, name), item in list(self.kube.objects.items()):
            if resource == SERVICES and not owners(item):
                self.kube.remove(resource, name)
        if self.rng.random() < 0.8:
            self._resume()

    # --- requests ---

    async def _apply(self, resource: Resource, **spec: Any) -> None:
        self._applied += 1
        name = f"{resource.kind.lower()}-{self._applied}"
        body = {"kind": resource.kind, "metadata": {"name": name, "namespace": NAMESPACE}}
        self.note("user: apply", name)
        await self.kube.create(resource, NAMESPACE, {**body, "spec": {"jobName": JOB, **spec}})

    async def _scale_out(self) -> None:
        timeout = self.rng.choice((5, 60))
        wanted: Json = {
            "count": self.rng.randrange(1, 4),
            "role": self._role(),
            "timeoutSeconds": timeout,
        }
        await self._apply(SCALE_OUTS, **wanted, **self._script())

    async def _scale_in(self) -> None:
        wanted: Json = {"count": self.rng.randrange(1, 3), "role": self._role()}
        if self.rng.random() < 0.6:
            pods = self._some_pods(self.rng.randrange(1, 3))
            wanted = {
                "podNames": [p["metadata"]["name"] for p in pods] or ["nobody"],
                "role": self._role(pods),
            }
        await self._apply(
            SCALE_INS, **wanted, timeoutSeconds=self.rng.choice((5, 60)), **self._script()
        )

    async def _scale_plan(self) -> None:
        rng = self.rng
        forms = rng.sample(
            ("counts", "resources", "create", "remove", "migrate"), rng.choice((1, 1, 1, 2, 3))
        )
        spec: Json = {
            "source": rng.choice(("Manual", "Manual", "Auto")),
            "timeoutSeconds": rng.choice((5, 30, 90)),
        }
        spec |= rng.choice(({}, {"onTimeout": "Rollback"}))
        spec |= rng.choice(({}, {}, {"drainSeconds": rng.choice((0, 15))}))
        by_role: Json = {}
        if "counts" in forms:
            by_role.setdefault(self._role(), {})["replicas"] = rng.randrange(0, 8)
        if "resources" in forms:
            by_role.setdefault(self._role(), {})["resource"] = self._resource()
        spec |= {"replicaResourceSpecs": by_role} if by_role else {}
        if "create" in forms:
            requested: list[Json] = [{"role": self._role()} for _ in range(rng.randrange(1, 4))]
            for member in requested:
                member |= rng.choice(
                    ({}, {}, {}, {"index": rng.randrange(0, 12)}, {"resource": self._resource()})
                )
            spec["createPods"] = requested
        if "remove" in forms:
            spec["removePods"] = [self._some_member() for _ in range(rng.randrange(1, 3))]
        if "migrate" in forms:
            moves = [self._some_member() for _ in range(rng.randrange(1, 3))]
            spec["migratePods"] = [
                move | rng.choice(({}, {"resource": self._resource()})) for move in moves
            ]
        if forms in (["create"], ["remove"]):
            spec |= self._script()
        await self._apply(SCALE_PLANS, **spec)

    async def _unknown_job(self) -> None:
        await self._apply(self.rng.choice((SCALE_OUTS, SCALE_INS)), jobName="nosuch", count=1)

    def _script(self) -> Json:
        """Return the fields of a request's script, or none.

        A job without a launcher could not run it, so it rarely gets one.
        """
        often = "launcher" in self._roles
        given: Json = {"script": "save", "env": [{"name": "A", "value": "b"}]}
        return given if self.rng.random() < (0.7 if often else 0.05) else {}

    def _resource(self) -> Json:
        choices = (
            {"cpu": "1500m"},
            {"cpu": "1"},
            {"memory": "2Gi"},
            {"memory": "64Mi"},
            {"rdma/hca": 1},
        )
        wanted: Json = self.rng.choice(choices)
        return wanted

    def _role(self, pods: list[Json] | None = None) -> str:
        if pods and pod_role(pods[0]) in self._roles:
            return pod_role(pods[0])
        return self.rng.choice(
            (*self._roles, *self._roles, "worker", "evaluator")[: 2 * len(self._roles) + 1]
        )

    def _some_pods(self, number: int) -> list[Json]:
        odd = self.rng.random() < 0.1
        pods = [
            p
            for p in self.kube.all(PODS)
            if odd or (pod_role(p) in self._roles and is_live(p) and not is_terminating(p))
        ]
        return self.rng.sample(pods, min(number, len(pods)))

    def _some_member(self) -> Json:
        pods = self._some_pods(1)
        if pods and self.rng.random() < 0.6:
            return {"name": pods[0]["metadata"]["name"]}
        if pods and self.rng.random() < 0.8:
            return {"role": self._role(pods), "index": int(pod_index(pods[0]) or 0)}
        return {"role": self._role(), "index": self.rng.randrange(0, 6)}

    # --- edits ---

    def _edit(self, edit: Callable[[Json], None]) -> None:
        if (ELASTIC_JOBS, JOB) in self.kube.objects:
            self.kube.edit(ELASTIC_JOBS, JOB, edit)

    def _edit_replicas(self) -> None:
        role = self.rng.choice(self._roles)

        def edit(spec: Json) -> None:
            found = spec["replicaSpecs"][role]
            found["replicas"] = self.rng.randint(found["minReplicas"], found["maxReplicas"])
            self.note("user: scale", role, "to", found["replicas"])

        self._edit(edit)

    def _edit_bounds(self) -> None:
        role = self.rng.choice(self._roles)

        def edit(spec: Json) -> None:
            found = spec["replicaSpecs"][role]
            found["minReplicas"] = self.rng.randint(0, found["replicas"])
            found["maxReplicas"] = found["replicas"] + self.rng.randrange(0, 4)
            self.note("user: bounds of", role, found["minReplicas"], found["maxReplicas"])

        self._edit(edit)

    def _suspend(self) -> None:
        self.note("user: suspend")
        self._edit(lambda spec: spec["runPolicy"].update(suspend=True))

    def _resume(self) -> None:
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        if job is not None and job["spec"]["runPolicy"].get("suspend"):
            self.note("user: resume")
            self._edit(lambda spec: spec["runPolicy"].update(suspend=False))

    def _stop(self) -> None:
        if (ELASTIC_JOBS, JOB) in self.kube.objects:
            self.note("user: stop")
            self._edit(lambda spec: spec["runPolicy"].update(stop=True))

    def _edit_policy(self) -> None:
        change: Json = self.rng.choice((
            {"allowScripts": True}, {"allowScripts": False},
            {"replaceOnNodeConditions": node_conditions(self.rng)}, {"replaceOnNodeConditions": []},
        ))  # fmt: skip
        self.note("user: policy", change)
        self._edit(lambda spec: spec["runPolicy"].update(change))

    async def _edit_rules(self) -> None:
        """Write valid or unreadable restart rules for the whole cluster, or remove them."""
        text = self.rng.choice(
            (json.dumps([random_rule(self.rng)]), json.dumps([random_rule(self.rng)]), "- [", "")
        )
        self.note("administrator: rules", text)
        if (CONFIG_MAPS, names.RULES_CONFIG_MAP) in self.kube.objects:
            self.kube.remove(CONFIG_MAPS, names.RULES_CONFIG_MAP)
        if text:
            metadata = {"name": names.RULES_CONFIG_MAP, "namespace": NAMESPACE}
            await self.kube.create(
                CONFIG_MAPS, NAMESPACE, {"metadata": metadata, "data": {names.RULES_KEY: text}}
            )

    def _delete_claim(self) -> None:
        """Delete a volume claim, which stays until no pod uses it."""
        claims = [claim for claim in self.kube.all(VOLUME_CLAIMS) if not is_terminating(claim)]
        if claims:
            name = self.rng.choice(claims)["metadata"]["name"]
            self.note("user: deletion of the claim", name)
            self.kube.mark_deleted(VOLUME_CLAIMS, name)

    def _cancel(self) -> None:
        items = [
            (r, i["metadata"]["name"])
            for r in (SCALE_PLANS, SCALE_INS, SCALE_OUTS)
            for i in self.kube.all(r)
        ]
        running = [
            (resource, name)
            for resource, name in items
            if self.kube.objects[resource, name].get("status", {}).get("phase")
            in ("Draining", "Executing", "Scaling")
        ]
        if items:
            resource, name = self.rng.choice(
                running if running and self.rng.random() < 0.4 else items
            )
            self.note("user: delete", name)
            self.kube.remove(resource, name)

    def _delete_job(self) -> None:
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        if job is not None and not is_terminating(job):
            how = self.rng.choice(("foreground", "foreground", "background", "background", "kept"))
            self.note("user: delete the job,", how)
            if how == "kept":
                finalizers = {"finalizers": ["example.com/kept"]}
                self.kube.edit_metadata(ELASTIC_JOBS, JOB, lambda meta: meta.update(finalizers))
            (self.kube.remove if how == "background" else self.kube.mark_deleted)(ELASTIC_JOBS, JOB)

    def _release_job(self) -> None:
        """Remove the finalizer that keeps a deleted job."""
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        if job is not None and job["metadata"].get("finalizers"):
            self.note("user: releases the job")
            self.kube.edit_metadata(ELASTIC_JOBS, JOB, lambda meta: meta.pop("finalizers"))

    async def _occupy_name(self) -> None:
        """Create an object with a name that the job may need."""
        role = self.rng.choice(self._roles)
        index = self.rng.randrange(0, 6)
        incarnation = self.rng.randrange(1, 9)
        name = self.rng.choice(
            (
                f"{JOB}-{role}-{index}",
                f"{JOB}-{role}-{index}-{incarnation}",
                f"{JOB}-master-1",
            )
        )
        resource = PODS
        if self.rng.random() < 0.2:
            resource = SERVICES
            name = f"{JOB}-master"
        if (resource, name) not in self.kube.objects:
            self.note("user: squats on", name)
            await self._create_foreign(resource, name, {})

    async def _replace_with_copy(self) -> None:
        """Delete a pod and create another one from a copy of its manifest, with its labels."""
        pods = [pod for pod in self.kube.all(PODS) if owners(pod)]
        old = [pod for pod in pods if not is_live(pod) or is_terminating(pod)]
        if pods:
            pod = self.rng.choice(old or pods)
            self.note("user: replaces", pod["metadata"]["name"])
            self.kube.remove(PODS, pod["metadata"]["name"])
            await self._create_foreign(PODS, pod["metadata"]["name"], pod["metadata"]["labels"])

    def _edit_labels(self) -> None:
        """Edit or remove labels of a pod, among them the one that the operator watches."""
        pods = [pod for pod in self.kube.all(PODS) if owners(pod)]
        if not pods:
            return
        name = self.rng.choice(pods)["metadata"]["name"]
        label = self.rng.choice(
            (names.LABEL_JOB_UID, names.LABEL_JOB_UID, names.LABEL_INDEX, names.LABEL_ROLE)
        )
        value = self.rng.choice((None, "1", "master"))
        self.note("user: label", label, "of", name, "becomes", value)

        def edit(metadata: Json) -> None:
            metadata["labels"].pop(label, None)
            metadata["labels"] |= {} if value is None else {label: value}

        self.kube.edit_metadata(PODS, name, edit)

    def _edit_counters(self) -> None:
        """Edit or remove the counters of restarts that a pod has as annotations."""
        pods = [pod for pod in self.kube.all(PODS) if owners(pod)]
        if not pods:
            return
        name = self.rng.choice(pods)["metadata"]["name"]
        key = self.rng.choice((names.ANNOTATION_RESTARTS, names.ANNOTATION_UNCOUNTED))
        value = self.rng.choice((None, "0", "1", "999999999"))
        self.note("user: annotation", key, "of", name, "becomes", value)

        def edit(metadata: Json) -> None:
            metadata.setdefault("annotations", {}).pop(key, None)
            metadata["annotations"] |= {} if value is None else {key: value}

        self.kube.edit_metadata(PODS, name, edit)

    def _delete_failed_pod(self) -> None:
        """Delete a failed pod, as a user does who has read its log."""
        pods = [
            pod
            for pod in self.kube.all(PODS)
            if owners(pod) and pod["status"].get("phase") == "Failed"
        ]
        if pods:
            name = self.rng.choice(pods)["metadata"]["name"]
            self.note("user: deletion of the failed pod", name)
            self.kube.remove(PODS, name)

    def _write_invalid_status(self) -> None:
        """Write a job's status so that it is invalid, or cannot be read at all."""
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        status = job.get("status", {}) if job is not None else {}
        if job is None or self._valid_status is not None or not status.get("replicaStatuses"):
            return
        role = self.rng.choice(self._roles)
        odd: Json = self.rng.choice((
            {"restartsByIndex": {"x": 1}}, {"backOff": {"0": {"failures": 3, "until": "soon"}}},
            {"startedIndices": "5000000-8000000"}, {"startedIndices": "0-99999"},
            {"highestIndex": -1}, {"resources": {"cpu": "1e900"}},
            {"resourcesByIndex": {"0": {"memory": "0"}}}, {"desired": -7},
        ))  # fmt: skip
        replica = {**status["replicaStatuses"].get(role, {}), **odd}
        if "highestIndex" in odd and not replica.get("startedIndices"):
            return  # nothing shows that a role without members has had some: this is valid
        self._valid_status = {"uid": job["metadata"]["uid"], **copied(status)}
        self.note("user: invalid status of", role, odd)
        roles = {**status["replicaStatuses"], role: replica}
        self.kube.set_status(ELASTIC_JOBS, JOB, replicaStatuses=roles)
        self._invalid_roles = copied(roles)

    def _correct_status(self) -> None:
        """Write the valid roles back into the status, if the job still exists.

        If the operator has changed the roles since, the written ones were valid at that time.
        """
        valid = self._valid_status
        self._valid_status = None
        job = self.kube.objects.get((ELASTIC_JOBS, JOB))
        if valid is None or job is None or job["metadata"]["uid"] != valid["uid"]:
            return
        if job["status"].get("replicaStatuses") != self._invalid_roles:
            return
        self.note("user: the status is corrected")
        self.kube.set_status(ELASTIC_JOBS, JOB, replicaStatuses=valid["replicaStatuses"])

    async def _create_foreign(self, resource: Resource, name: str, labels: Json) -> None:
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        await self.kube.create(
            resource, NAMESPACE, {"metadata": metadata, "spec": {"containers": [{"name": "other"}]}}
        )
