"""Tests how long the hub keeps a user's pages: no right outlives its withdrawal for long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request
from elasticjob_client import hub
from elasticjob_client.hub import Users
from elasticjob_client.jobs_page import JobsPage

from tests.support.kubeconfig import access_of_nobody
from tests.support.played_api import PlayedApi

ANSWERS = {"GET ": {"metadata": {}, "items": []}, "POST ": {"status": {"allowed": True}}}


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Users]:
    async with PlayedApi(ANSWERS).cluster(tmp_path) as cluster:
        made = Users(cluster.kube.http, access_of_nobody(cluster.kube.host), [])
        yield made
        await made.close()


async def page(users: Users, token: str) -> JobsPage | None:
    headers = {"Authorization": f"Bearer {token}"}
    return await users.page_of(make_mocked_request("GET", "/status", headers=headers))


@pytest.mark.guarantee("hub-lends-no-right")
async def test_a_users_pages_end_after_some_minutes_so_that_rights_are_asked_again(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await page(users, "a")
    assert first is not None
    assert await page(users, "a") is first
    assert await page(users, "b") is not first
    await users.end_old()
    assert await page(users, "a") is first
    monkeypatch.setattr(hub, "_LONGEST_SECONDS", 0.0)
    monkeypatch.setattr(hub, "_MOST_USERS", 1)
    assert await page(users, "c") is not None
    old = await page(users, "c")
    assert await page(users, "c") is not old
    assert len(users._pages) == 1
    await users.end_old()
    assert users._pages == {}


@pytest.mark.guarantee("hub-lends-no-right")
@pytest.mark.parametrize("token", ["", "a\x00b", "é", "x" * 20_000])
async def test_what_cannot_be_a_token_is_not_sent_on(users: Users, token: str) -> None:
    assert await page(users, token) is None
