"""Opens the page of all jobs as two users of different rights, on a real API server."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from elasticjob_api import names
from elasticjob_api.answers import pack
from elasticjob_client.cluster import Access, open_cluster
from elasticjob_client.cluster import Cluster as ClientCluster
from elasticjob_client.errors import ClientError
from elasticjob_client.hub import serve_hub
from elasticjob_client.jobs_page import serve_jobs
from elasticjob_client.visible_jobs import JobsReader
from elasticjob_dashboard.jobs import Rights
from elasticjob_kube.access import find_access
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SCALE_PLANS,
    SERVICE_ACCOUNTS,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.browser import Visit, open_browser, visit
from tests.support.operator_process import create, job
from tests.support.self_signed import self_signed
from tests.support.served_page import answers_of
from tests.support.service_accounts import kubeconfig_of
from tests.support.wait import until

_RBAC = ("rbac.authorization.k8s.io", "v1")
CLUSTER_ROLES = Resource(*_RBAC, "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(*_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
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
        account = {"metadata": {"name": name}}
        jobs = [each.plural for each in (ELASTIC_JOBS, SCALE_PLANS)]
        rules = [
            {"apiGroups": [names.GROUP], "resources": jobs, "verbs": list(verbs)},
            {"apiGroups": [""], "resources": [CONFIG_MAPS.plural], "verbs": ["get"]},
        ]
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        await self.kube.create(SERVICE_ACCOUNTS, self.namespace, account)
        await self.kube.create(ROLES, self.namespace, account | {"rules": rules})
        binding = account | {"subjects": [subject], "roleRef": role}
        await self.kube.create(ROLE_BINDINGS, self.namespace, binding)
        folder = self.folder / name
        folder.mkdir()
        return await kubeconfig_of(name, self.cluster, self.kube, self.namespace, folder)

    @asynccontextmanager
    async def page(self, kubeconfig: Path, namespace: str | None = None) -> AsyncIterator[str]:
        """Serve the page with a kubeconfig; yields its address."""
        async with (
            open_cluster(Access(kubeconfig, namespace=self.namespace)) as session,
            serve_jobs(session, namespace=namespace) as url,
        ):
            yield url


@pytest.fixture
def users(cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path) -> Users:
    return Users(cluster, kube, namespace, tmp_path)


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


async def names_of(page: Visit) -> list[str]:
    return await page.page.locator("#jobs tbody a").all_inner_texts()


async def spec_of(kube: Kube, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = (await kube.get(ELASTIC_JOBS, namespace, "fine"))["spec"]
    return found


@pytest.mark.guarantee("page-of-all-jobs")
async def test_two_users_see_and_change_what_their_rights_allow(
    users: Users, kube: Kube, namespace: str
) -> None:
    await make_jobs(kube, namespace)
    viewer = await users.make("viewer", LOOK)
    editor = await users.make("editor", CHANGE)
    async with (
        users.page(viewer) as viewed,
        users.page(editor) as edited,
        open_browser() as browser,
    ):
        seeing = await visit(browser, viewed, width=390)
        await seeing.until_text("#jobs", "10 / 100", "250 / s", "2/2", "more, Pending", "no disk")
        assert await names_of(seeing) == ["ended", "slow", "fine"]
        assert await seeing.page.locator("#jobs tbody button").count() == 0
        assert await seeing.page.evaluate("document.documentElement.scrollWidth") == 390
        await seeing.until_text("#notes", "you may not list namespaces")

        changing = await visit(browser, edited)
        await changing.until_text("#jobs tbody", "Suspend", "Scale")
        button = changing.page.get_by_label(f"Suspend {namespace}/fine")
        await button.click()
        await changing.page.click("#change-do")
        await changing.until_text("#did", "will be suspended")
        await changing.until_text("#jobs tbody", "Resume")
        assert (await spec_of(kube, namespace))["runPolicy"]["suspend"] is True
        await changing.page.get_by_label(f"Resume {namespace}/fine").click()
        await changing.page.click("#change-do")
        await changing.page.get_by_label(f"Scale {namespace}/fine").click()
        await changing.page.fill("#size", "7")
        await changing.page.click("#change-do")
        await changing.until_text("#change-problem", "above maxReplicas 6")
        await changing.page.fill("#size", "4")
        await changing.page.click("#change-do")
        await changing.until_text("#did", "ScalePlan fine-")
        await seeing.until_text("#jobs tbody", "fine-")

        await changing.page.fill("#filter", "failed")
        assert await names_of(changing) == ["ended"]
        await changing.page.click("#jobs tbody a")
        await changing.until_text("#phase", "Failed")
        await changing.until_text("#members", HOSTILE)
        await changing.page.click("#all")
        await changing.until_text("#jobs", "slow")
        assert await changing.page.locator("img").count() == 0
        assert seeing.problems == []
        assert changing.problems == []


@asynccontextmanager
async def hub(kubeconfig: Path, folder: Path, namespace: str) -> AsyncIterator[str]:
    """Serve the hub without credentials: address and authority are those of a kubeconfig."""
    pair = self_signed("hub")
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    access = replace(await find_access(kubeconfig, None), authorization=no_credentials)
    async with serve_hub(access, folder, namespaces=[namespace], host="127.0.0.1") as url:
        yield url


async def no_credentials() -> None:
    return None


def token_in(kubeconfig: Path) -> str:
    found: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return found


@pytest.mark.guarantee("hub-lends-no-right")
async def test_the_hub_shows_each_user_what_the_users_own_token_may(
    users: Users, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    await make_jobs(kube, namespace)
    viewer = await users.make("viewer", LOOK)
    editor = await users.make("editor", CHANGE)
    nobody = await users.make("nobody", ["get"])
    async with hub(viewer, tmp_path, namespace) as url, open_browser() as browser:
        seeing = await visit(browser, f"{url}#token={token_in(viewer)}")
        changing = await visit(browser, f"{url}#token={token_in(editor)}")
        await seeing.until_text("#jobs", "fine", "slow", "ended")
        assert await seeing.page.locator("#jobs tbody button").count() == 0
        await changing.page.get_by_label(f"Suspend {namespace}/fine").click()
        await changing.page.click("#change-do")
        await changing.until_text("#did", "will be suspended")
        assert (await spec_of(kube, namespace))["runPolicy"]["suspend"] is True
        await seeing.page.fill("#filter", "failed")
        await seeing.page.click("#jobs tbody a")
        await seeing.until_text("#phase", "Failed")
        await seeing.page.reload()
        await seeing.until_text("#members", HOSTILE)
        refused = await visit(browser, f"{url}#token={token_in(nobody)}")
        await refused.until_text("#problem", "forbidden")
        assert await refused.page.locator("#jobs tbody tr").count() == 0
        for page in (seeing, changing, refused):
            assert page.problems == []
        stranger = await visit(browser, f"{url}#token=x")
        await stranger.until_text("#problem", "not accepted")
        await stranger.page.fill("#token", token_in(viewer))
        await stranger.page.click("#ask button")
        await stranger.until_text("#jobs", "fine")

        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=False)) as http:
            path = f"/jobs/{namespace}/slow/suspend"
            uid = (await kube.get(ELASTIC_JOBS, namespace, "slow"))["metadata"]["uid"]
            seen = {"Authorization": f"Bearer {token_in(viewer)}"}
            async with http.post(path, json={"uid": uid}, headers=seen) as answer:
                assert "forbidden" in (await answer.json())["problem"]
            may = {"Authorization": f"Bearer {token_in(editor)}", "Content-Type": "text/plain"}
            async with http.post(path, data=b"{}", headers=may) as answer:
                assert answer.status == 415
            for headers in ({}, {"Authorization": "Bearer x"}):
                for where in ("/status", "/stream", f"/jobs/{namespace}/fine/status"):
                    async with http.get(where, headers=headers) as answer:
                        assert answer.status == 401
            await kube.delete(SERVICE_ACCOUNTS, namespace, "editor")

            async def present() -> int:
                known = {"Authorization": f"Bearer {token_in(editor)}"}
                async with http.get("/status", headers=known) as answer:
                    return answer.status

            await until("the account's end", present, lambda status: status == 401)


@pytest.mark.guarantee("page-of-all-jobs")
async def test_rights_that_are_taken_away_end_with_the_next_look(
    users: Users, kube: Kube, namespace: str
) -> None:
    await make_jobs(kube, namespace)
    async with users.page(await users.make("editor", CHANGE)) as url:
        base, _, token = url.partition("#token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(base, headers=headers) as http:

            async def status() -> dict[str, Any]:
                async with http.get("/status") as answer:
                    found: dict[str, Any] = await answer.json()
                    return found

            uid = (await status())[f"{namespace}/fine"]["uid"]
            await kube.delete(ROLE_BINDINGS, namespace, "editor")

            def refused(found: dict[str, Any]) -> bool:
                return "forbidden" in (found["problem"] or "") and "order" not in found

            await until("the refusal", status, refused)
            path = f"/jobs/{namespace}/fine/suspend"
            async with http.post(path, json={"uid": uid}) as answer:
                assert "forbidden" in (await answer.json())["problem"]
            assert (await spec_of(kube, namespace))["runPolicy"]["suspend"] is False


@pytest.mark.guarantee("page-of-all-jobs")
async def test_only_pages_with_the_token_of_this_server_get_data_and_change_jobs(
    users: Users, kube: Kube, namespace: str
) -> None:
    await make_jobs(kube, namespace)
    path = f"/jobs/{namespace}/fine/suspend"
    async with users.page(await users.make("editor", CHANGE)) as url:
        base, _, token = url.partition("#token=")
        own = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(base) as http:
            for headers, expected in (
                ({}, 401),
                ({"Authorization": "Bearer x"}, 401),
                (own | {"Host": "example.com"}, 403),
                (own | {"Origin": "http://example.com"}, 403),
                (own | {"Origin": "null"}, 403),
            ):
                for method, where in (("GET", "/status"), ("GET", "/stream"), ("POST", path)):
                    body = {"uid": "u"} if method == "POST" else None
                    async with http.request(method, where, json=body, headers=headers) as answer:
                        assert answer.status == expected, (headers, where)
            async with http.post(path, json={"uid": "another"}, headers=own) as answer:
                assert "another job" in (await answer.json())["problem"]
            async with http.get(path, headers=own) as answer:
                assert answer.status == 405
            for where in ("/", f"/jobs/{namespace}/fine/"):
                async with http.get(where) as answer:
                    assert namespace not in await answer.text()
        assert (await spec_of(kube, namespace))["runPolicy"]["suspend"] is False


@pytest.mark.guarantee("page-of-all-jobs")
async def test_jobs_of_all_namespaces_are_shown_where_the_user_may_list_them(
    users: Users, kube: Kube, namespace: str
) -> None:
    await make_jobs(kube, namespace)
    elsewhere = await kube.create(NAMESPACES, None, {"metadata": {"generateName": "test-"}})
    other = elsewhere["metadata"]["name"]
    role = {"metadata": {"name": namespace}}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}
    reference = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": namespace}
    try:
        await kube.create(ELASTIC_JOBS, other, job("hidden"))
        viewer = await users.make("viewer", LOOK)
        await kube.create(CLUSTER_ROLES, None, role | {"rules": [rule]})
        await kube.create(BINDINGS, None, role | {"subjects": [subject], "roleRef": reference})
        async with open_cluster(Access(viewer, namespace="default")) as session:
            seen = await JobsReader(session, None).read()
            assert {each.metadata.name for each in seen.jobs} == {"fine", "slow", "ended"}
            assert seen.rights == {namespace: Rights()}
            with pytest.raises(ClientError, match="cannot be listed"):
                await JobsReader(session, other).read()
        seen = await JobsReader(ClientCluster(kube, "default"), None).read()
        assert {"hidden", "fine"} <= {each.metadata.name for each in seen.jobs}
        assert seen.rights[other] == Rights(suspend=True, scale=True)
    finally:
        for resource in (BINDINGS, CLUSTER_ROLES):
            await kube.delete(resource, None, namespace)
        await kube.delete(NAMESPACES, None, other)


@pytest.mark.guarantee("page-of-all-jobs")
async def test_a_user_who_may_list_no_jobs_is_told_at_the_start(users: Users) -> None:
    with pytest.raises(ClientError, match=r"cannot be listed: .* is forbidden"):
        async with users.page(await users.make("nobody", ["get"])):
            pass
