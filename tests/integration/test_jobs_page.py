"""Opens the page of all jobs as two users of different rights, on a real API server."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster as ClientCluster
from elasticjob_client.cluster import open_cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.visible_jobs import JobsReader
from elasticjob_dashboard.jobs import Rights
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    NAMESPACES,
    ROLE_BINDINGS,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.browser import Visit, open_browser, visit
from tests.support.jobs_page_users import CHANGE, HOSTILE, LOOK, Users, make_jobs, spec_of
from tests.support.operator_process import job
from tests.support.wait import until

_RBAC = ("rbac.authorization.k8s.io", "v1")
CLUSTER_ROLES = Resource(*_RBAC, "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(*_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)


@pytest.fixture
def users(cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path) -> Users:
    return Users(cluster, kube, namespace, tmp_path)


async def names_of(page: Visit) -> list[str]:
    return await page.page.locator("#jobs tbody a").all_inner_texts()


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


@pytest.mark.guarantee("page-of-all-jobs")
@pytest.mark.thorough
async def test_rights_that_are_taken_away_end_with_the_next_look(
    users: Users, kube: Kube, namespace: str
) -> None:
    await make_jobs(kube, namespace)
    async with users.page(await users.make("editor", CHANGE)) as url:
        base, _, token = url.partition("#token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(base, headers=headers) as http:

            async def status() -> tuple[int, str]:
                async with http.get("/status") as answer:
                    return answer.status, await answer.text()

            uid = json.loads((await status())[1])[f"{namespace}/fine"]["uid"]
            await kube.delete(ROLE_BINDINGS, namespace, "editor")
            _, text = await until("the refusal", status, lambda found: found[0] == 403)
            assert "is forbidden" in text
            assert "fine" not in text
            path = f"/jobs/{namespace}/fine/suspend"
            async with http.post(path, json={"uid": uid}) as answer:
                assert answer.status == 403
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
@pytest.mark.thorough
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
            assert {each.name for each in seen.jobs} == {"fine", "slow", "ended"}
            assert seen.rights == {namespace: Rights()}
            with pytest.raises(ClientError, match="cannot be listed"):
                await JobsReader(session, other).read()
        seen = await JobsReader(ClientCluster(kube, "default"), None).read()
        assert {"hidden", "fine"} <= {each.name for each in seen.jobs}
        assert seen.rights[other] == Rights(patch=True, scale=True)
    finally:
        for resource in (BINDINGS, CLUSTER_ROLES):
            await kube.delete(resource, None, namespace)
        await kube.delete(NAMESPACES, None, other)


@pytest.mark.guarantee("page-of-all-jobs")
async def test_a_user_who_may_list_no_jobs_is_told_at_the_start(users: Users) -> None:
    with pytest.raises(ClientError, match=r"cannot be listed: .* is forbidden"):
        async with users.page(await users.make("nobody", ["get"])):
            pass
