"""Makes users of different rights, and the jobs that they look at in the page of all jobs."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.answers import pack
from elasticjob_client.access import Access
from elasticjob_client.cluster import open_cluster
from elasticjob_client.jobs_page import serve_jobs
from elasticjob_kube.resources import CONFIG_MAPS, ELASTIC_JOBS, SCALE_PLANS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.operator_process import create, job
from tests.support.served_page import answers_of
from tests.support.service_accounts import make_account

HOSTILE = "<img src=x onerror=alert(1)>"
LOOK = ["get", "list"]
CHANGE = [*LOOK, "patch", "create"]


@dataclass(frozen=True)
class Users:
    """Makes users of a namespace, and serves the page for them."""

    cluster: Cluster
    kube: Kube
    namespace: str
    folder: Path

    async def make(self, name: str, verbs: Sequence[str]) -> Path:
        """Create an account with these verbs on jobs and plans; return its kubeconfig."""
        jobs = [each.plural for each in (ELASTIC_JOBS, SCALE_PLANS)]
        rules = [
            {"apiGroups": [names.GROUP], "resources": jobs, "verbs": list(verbs)},
            {"apiGroups": [""], "resources": [CONFIG_MAPS.plural], "verbs": ["get"]},
        ]
        folder = self.folder / name
        folder.mkdir()
        return await make_account(name, self.cluster, self.kube, self.namespace, folder, *rules)

    @asynccontextmanager
    async def page(self, kubeconfig: Path, namespace: str | None = None) -> AsyncIterator[str]:
        """Serve the page with a kubeconfig; yields its address."""
        async with (
            open_cluster(Access(kubeconfig, namespace=self.namespace)) as session,
            serve_jobs(session, namespace=namespace) as url,
        ):
            yield url


async def set_status(kube: Kube, namespace: str, name: str, **status: Any) -> None:
    body = {"status": status}
    await kube.patch(ELASTIC_JOBS, namespace, name, body, subresource="status")


async def make_jobs(kube: Kube, namespace: str) -> None:
    """Create a job that trains, one that is stalled, and one that has ended with a report."""
    for name in ("fine", "slow", "ended"):
        made = await kube.create(ELASTIC_JOBS, namespace, job(name))
    progress = {"step": 10, "totalSteps": 100, "samplesPerSecond": 250.0}
    await set_status(kube, namespace, "fine", phase="Running", workers="2/2", progress=progress)
    stalled = progress | {"stalledSince": "2026-01-01T00:00:00Z"}
    await set_status(kube, namespace, "slow", phase="Running", workers="1/2", progress=stalled)
    await set_status(kube, namespace, "ended", phase="Failed", message=f"no disk {HOSTILE}")
    sizes = {"worker": {"replicas": 3}}
    await create(kube, namespace, SCALE_PLANS, "more", jobName="fine", replicaResourceSpecs=sizes)
    answers = answers_of(text=HOSTILE)
    answers.job_uid = made["metadata"]["uid"]
    report = {names.REPORT_KEY: base64.b64encode(pack(answers)).decode()}
    stored = {"metadata": {"name": names.query_config_map("ended")}, "binaryData": report}
    await kube.create(CONFIG_MAPS, namespace, stored)


async def spec_of(kube: Kube, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = (await kube.get(ELASTIC_JOBS, namespace, "fine"))["spec"]
    return found
