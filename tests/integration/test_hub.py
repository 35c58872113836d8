"""Opens the hub as users who each show a token of their own, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import yaml
from elasticjob_client.hub import serve_hub
from elasticjob_kube.access import find_access
from elasticjob_kube.resources import ELASTIC_JOBS, SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.browser import open_browser, visit
from tests.support.jobs_page_users import CHANGE, HOSTILE, LOOK, Users, make_jobs, spec_of
from tests.support.kubeconfig import no_credentials
from tests.support.self_signed import write_pair
from tests.support.wait import until


@pytest.fixture
def users(cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path) -> Users:
    return Users(cluster, kube, namespace, tmp_path)


@asynccontextmanager
async def hub(kubeconfig: Path, folder: Path, namespace: str) -> AsyncIterator[str]:
    """Serve the hub without credentials: address and authority are those of a kubeconfig."""
    write_pair(folder, "hub")
    access = replace(await find_access(kubeconfig, None), authorization=no_credentials)
    async with serve_hub(access, folder, namespaces=[namespace], host="127.0.0.1") as url:
        yield url


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
        own = await visit(browser, f"{url}jobs/{namespace}/slow/#token={token_in(editor)}")
        await own.page.get_by_label(f"Stop {namespace}/slow").click()
        await own.page.click("#change-do")
        await own.until_text("#did", "will be stopped")
        assert (await kube.get(ELASTIC_JOBS, namespace, "slow"))["spec"]["runPolicy"]["stop"]
        await own.until("no more offers", lambda: own.text("#changes"), lambda text: not text)
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
                assert answer.status == 403
                assert "forbidden" in (await answer.json())["problem"]
            for token, offers in ((viewer, []), (editor, ["resume", "stop"]), (nobody, [])):
                headers = {"Authorization": f"Bearer {token_in(token)}"}
                async with http.get(f"/jobs/{namespace}/fine/offers", headers=headers) as answer:
                    assert (await answer.json())["offers"] == offers
            none = {"Authorization": f"Bearer {token_in(nobody)}"}
            async with http.get("/status", headers=none) as answer:
                assert answer.status == 403
                assert "is forbidden" in await answer.text()
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
