"""Runs a master at a real API server, with exactly the rights of its Role."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from elasticjob_api import names
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    ROLE_BINDINGS,
    ROLES,
    SCALE_PLANS,
    SERVICE_ACCOUNTS,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.master_process import Master, run_master
from tests.support.service_accounts import kubeconfig_of

JOB = "job"
COOLDOWN = 1


@dataclass
class Setting:
    """A job in a namespace, and the objects that its master needs."""

    kube: Kube
    namespace: str
    uid: str
    kubeconfig: Path
    folder: Path

    @asynccontextmanager
    async def master(
        self,
        *,
        through: int | None = None,
        ports: tuple[int, int] = (0, 0),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[Master]:
        """Run a master.

        `through` is the port at which it reaches the API server; `ports` are its own.
        """
        kubeconfig = self.kubeconfig
        if through is not None:
            config = yaml.safe_load(kubeconfig.read_text())
            for cluster in config["clusters"]:
                cluster["cluster"]["server"] = f"https://127.0.0.1:{through}"
            kubeconfig = self.folder / f"kubeconfig-{through}"
            kubeconfig.write_text(yaml.safe_dump(config))
        env = {
            "KUBECONFIG": str(kubeconfig),
            names.ENV_JOB_NAME: JOB,
            names.ENV_JOB_UID: self.uid,
            names.ENV_NAMESPACE: self.namespace,
            names.ENV_POD_NAME: names.master_pod(JOB, 0),
            names.ENV_FRAMEWORK: "jax",
            **environment,
        }
        async with run_master(self.folder, env=env, ports=ports) as running:
            yield running

    async def job(self) -> dict[str, Any]:
        return await self.kube.get(ELASTIC_JOBS, self.namespace, JOB)

    async def patch_job(self, body: dict[str, Any], subresource: str = "") -> None:
        await self.kube.patch(ELASTIC_JOBS, self.namespace, JOB, body, subresource=subresource)

    async def set_desired(self, count: int) -> None:
        """Set the desired size in the job's status, as the operator does."""
        status = {"replicaStatuses": {"worker": {"desired": count, "indices": f"0-{count - 1}"}}}
        await self.patch_job({"status": status}, "status")

    async def plans(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.kube.list(SCALE_PLANS, self.namespace))["items"]
        return found

    async def create_plan(self, name: str, **spec: Any) -> str:
        """Create a ScalePlan of a user; return its UID."""
        kind = {"apiVersion": SCALE_PLANS.api_version, "kind": SCALE_PLANS.kind}
        body = {**kind, "metadata": {"name": name}, "spec": {"jobName": JOB, **spec}}
        created = await self.kube.create(SCALE_PLANS, self.namespace, body)
        return str(created["metadata"]["uid"])

    async def set_plan_status(self, name: str, **status: Any) -> None:
        """Write a plan's progress, as the operator does."""
        body = {"status": status}
        await self.kube.patch(SCALE_PLANS, self.namespace, name, body, subresource="status")

    async def stored_state(self) -> bytes:
        """Return what the master's ConfigMap contains; empty if nothing."""
        found = await self.kube.get(CONFIG_MAPS, self.namespace, names.state_config_map(JOB))
        return base64.b64decode((found.get("binaryData") or {}).get("state", ""))


def role() -> dict[str, Any]:
    group = [names.GROUP]
    return {
        "metadata": {"name": "master"},
        "rules": [
            {
                "apiGroups": group,
                "resources": ["elasticjobs"],
                "verbs": ["get", "list", "watch"],
                "resourceNames": [JOB],
            },
            {
                "apiGroups": group,
                "resources": ["elasticjobs/status"],
                "verbs": ["patch"],
                "resourceNames": [JOB],
            },
            {
                "apiGroups": group,
                "resources": ["scaleplans"],
                "verbs": ["get", "list", "watch", "create"],
            },
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "verbs": ["get", "patch", "update"],
                "resourceNames": [names.state_config_map(JOB)],
            },
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "verbs": ["patch"],
                "resourceNames": [names.query_config_map(JOB)],
            },
        ],
    }


async def prepare(cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path) -> Setting:
    """Create a job and its master's account, with exactly the rights of its Role."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["train"]}]}}
    worker = {
        "replicas": 2,
        "minReplicas": 1,
        "maxReplicas": 5,
        "template": template,
        "drainSeconds": 5,
    }
    spec = {
        "framework": "jax",
        "replicaSpecs": {"worker": worker},
        "autoscaling": {"cooldownSeconds": COOLDOWN},
    }
    kind = {"apiVersion": ELASTIC_JOBS.api_version, "kind": ELASTIC_JOBS.kind}
    job = await kube.create(
        ELASTIC_JOBS, namespace, {**kind, "metadata": {"name": JOB}, "spec": spec}
    )
    await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": names.state_config_map(JOB)}})
    await kube.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "master"}})
    await kube.create(ROLES, namespace, role())
    binding = {
        "metadata": {"name": "master"},
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "master"},
        "subjects": [{"kind": "ServiceAccount", "name": "master", "namespace": namespace}],
    }
    await kube.create(ROLE_BINDINGS, namespace, binding)
    mine = await kubeconfig_of("master", cluster, kube, namespace, tmp_path)
    return Setting(kube, namespace, job["metadata"]["uid"], mine, tmp_path)
