"""Tests that another user's server or pod that poses as part of the job gets only the token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from elasticjob_api import names
from elasticjob_client import dashboard
from elasticjob_client.dashboard import serve_dashboard
from elasticjob_client.errors import MasterUnreachable
from elasticjob_client.jobs import get_job
from elasticjob_client.master import forward_to_master
from elasticjob_client.page_logs import LONGEST_LINE
from elasticjob_client.related import pods_of
from elasticjob_dashboard.page import Page

from tests.support.impostor import OWNER, Impostor, cluster_with, impostor, pod
from tests.support.loopback import loopback_network


@pytest.fixture
def address() -> Iterator[str]:
    with loopback_network() as network:
        yield f"{network}.1"


@asynccontextmanager
async def page_of(
    address: str, folder: Path, *, pods: tuple[dict[str, Any], ...] = (), log: str = ""
) -> AsyncIterator[tuple[Impostor, aiohttp.ClientSession]]:
    """Serve the page of a job whose master is an impostor, and open a session with it."""
    async with (
        impostor(address, folder) as master,
        cluster_with(
            folder, address=address, authority=master.authority, pods=pods, log=log
        ) as cluster,
        serve_dashboard(cluster, "a") as url,
        aiohttp.ClientSession(url) as http,
    ):
        yield master, http


@pytest.mark.guarantee("local-dashboard")
async def test_the_dashboard_serves_its_own_page_and_no_html_of_a_server(
    tmp_path: Path, address: str
) -> None:
    async with page_of(address, tmp_path) as (_, http):
        async with http.get("/") as answer:
            assert await answer.text() == Page(reads_logs=True).text
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert "Set-Cookie" not in answer.headers
        async with http.get("/status") as answer:
            assert answer.content_type == "application/json"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert "Set-Cookie" not in answer.headers


@pytest.mark.guarantee("page-shows-the-job")
async def test_the_history_of_another_job_is_read_with_the_users_rights(
    tmp_path: Path, address: str
) -> None:
    async with page_of(address, tmp_path) as (master, http):
        master.body = b'{"phase": "p", "samples": [{"step": 1}], "report": {"began": 2}}'
        async with http.get("/other", params={"job": "a"}) as answer:
            history = await answer.json()
        assert history == {"samples": [{"step": 1}], "report": {"began": 2}}
        async with http.get("/other", params={"job": "b"}) as answer:
            assert (answer.status, "not found" in await answer.text()) == (503, True)
        async with http.get("/other") as answer:
            assert await answer.json() == {"names": ["a"]}


@pytest.mark.guarantee("local-dashboard")
async def test_only_pods_that_the_job_controls_and_has_named_are_its_pods(tmp_path: Path) -> None:
    own = (
        pod("a-worker-0", "worker", "0"),
        pod("a-worker-1-1", "worker", "1"),
        pod("a-master-1", "master"),
    )
    others = (
        pod("b", "worker", "0"),
        pod("a-worker-0-1x", "worker", "0"),
        pod("a-worker-2", "worker", "2"),
        pod("a-worker-1-2", "worker", "1"),
        pod("a-chief-0", "chief", "0"),
        pod("a-master-2", "master"),
        pod("a-master", "worker", "0"),
        pod("a-worker-1", "worker", "0"),
        pod("a-worker-0", "worker", "0", ownerReferences=[]),
        pod("a-worker-0", "worker", "0", ownerReferences=[OWNER | {"controller": False}]),
        pod("a-worker-0", "worker", "0", ownerReferences=[OWNER | {"uid": "x"}]),
        pod("a-worker-0", "worker", "0", ownerReferences=[OWNER | {"kind": "Job"}]),
    )
    async with cluster_with(tmp_path, pods=(*others, *own)) as cluster:
        found = await pods_of(cluster, await get_job(cluster, "a"))
    assert [each["metadata"]["name"] for each in found] == [
        each["metadata"]["name"] for each in own
    ]


@pytest.mark.guarantee("local-dashboard")
async def test_the_dashboard_reads_bounded_logs_of_the_jobs_pods_for_its_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    pods = (pod("a-worker-0", "worker", "0"), pod("a-worker-1", "worker", "0"))
    async with page_of(address, tmp_path, pods=pods, log="x" * 5000) as (_, http):

        async def log(name: str) -> dict[str, Any]:
            async with http.get("/log", params={"pod": name}) as answer:
                assert (answer.status, answer.content_type) == (200, "application/json")
                found: dict[str, Any] = await answer.json()
                return found

        own = await log("a-worker-0")
        assert ([len(line) for line in own["lines"]], own["problem"]) == ([LONGEST_LINE], "")
        for other in ("a-worker-1", "b", "", "../../secrets/s"):
            refused = await log(other)
            assert refused["lines"] == []
            assert refused["problem"].startswith("job ns/a has no ")
        monkeypatch.setattr(dashboard, "is_own", lambda *_: False)
        assert (await log("a-worker-0"))["lines"] == []


@pytest.mark.guarantee("page-shows-the-job", "local-dashboard")
async def test_the_logs_of_all_members_are_searched_for_the_users_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    running = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    spec = {"containers": [{"name": "main"}]}
    own = [
        pod(name, role, index) | {"spec": spec, "status": running}
        for name, role, index in (
            ("a-worker-1-1", "worker", "1"),
            ("a-worker-0", "worker", "0"),
            ("a-master-1", "master", None),
            ("b", "worker", "0"),
        )
    ]
    waiting = pod("a-worker-0-1", "worker", "0")
    lines = "\n".join(("step 1", "\x1b[31mRunTimeError: no", "x" * 300_000))
    async with page_of(address, tmp_path, pods=(*own, waiting), log=lines) as (_, http):

        async def logs(find: str) -> tuple[int, str]:
            async with http.get("/logs", params={"find": find}) as answer:
                assert answer.content_type == "text/plain"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                return answer.status, await answer.text()

        members = ("a-worker-0", "a-worker-1-1")
        found = "".join(f"{each} \x1b[31mRunTimeError: no\n" for each in members)
        assert await logs("runtimeerror") == (200, found)
        every = "".join(f"{name} {line}\n" for name in members for line in lines.split("\n"))
        assert await logs("") == (200, every)
        monkeypatch.setattr(dashboard, "is_own", lambda *_: False)
        status, text = await logs("")
        assert (status, "step" in text) == (403, False)


@pytest.mark.guarantee("local-dashboard")
async def test_ports_are_forwarded_to_the_masters_present_pod_only(tmp_path: Path) -> None:
    earlier = pod("a-master", "master")
    labelled = pod("a-master-1", "master", ownerReferences=[])
    present = pod("a-master-1", "master")
    async with cluster_with(tmp_path, pods=(earlier, labelled)) as cluster:
        with pytest.raises(MasterUnreachable, match="no pod that runs"):
            async with forward_to_master(cluster, await get_job(cluster, "a"), names.GRPC_PORT):
                pass
    async with (
        cluster_with(tmp_path, pods=(earlier, present)) as cluster,
        forward_to_master(cluster, await get_job(cluster, "a"), names.GRPC_PORT) as forwarding,
    ):
        assert forwarding.address
