"""Lets users sign in at the hub, through real sockets, while others send wrong tokens."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from elasticjob_client import sign_in
from elasticjob_client.hub import serve_hub

from tests.support.kubeconfig import access_of_nobody
from tests.support.self_signed import write_pair
from tests.support.served_app import served_app
from tests.support.wait import until

GARBAGE = 40


class Api:
    """An API server that knows one token, and refuses others when `refusing` is set."""

    def __init__(self) -> None:
        self.refusing = asyncio.Event()
        self.asked: Counter[str] = Counter()
        self.app = web.Application()
        self.app.router.add_route("*", "/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"]
        self.asked[token] += 1
        if token != "Bearer good":
            await self.refusing.wait()
            return web.json_response({"message": "Unauthorized"}, status=401)
        if request.method == "POST":
            return web.json_response({"status": {"allowed": True}})
        return web.json_response({"metadata": {}, "items": []})


class Hub:
    """A hub and the API server behind it."""

    def __init__(self, url: str, api: Api) -> None:
        self.url = url
        self.api = api

    async def status(self, token: str, *, address: str = "127.0.0.1") -> int:
        """Return the status of the answer to a user at an address of this machine."""
        context = ssl._create_unverified_context()
        connector = aiohttp.TCPConnector(ssl=context, local_addr=(address, 0))
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as http,
            http.get(f"{self.url}status") as answer,
        ):
            return answer.status


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    write_pair(tmp_path, "hub")
    api = Api()
    async with served_app(api.app) as port:
        access = access_of_nobody(f"http://127.0.0.1:{port}")
        async with serve_hub(access, tmp_path, host="127.0.0.1") as url:
            yield Hub(url, api)
            api.refusing.set()


@asynccontextmanager
async def garbage(hub: Hub) -> AsyncIterator[list[asyncio.Task[int]]]:
    """Let an address send wrong tokens, about which the API server thinks for long."""
    sent = [
        asyncio.create_task(hub.status(f"wrong-{number}", address="127.0.0.2"))
        for number in range(GARBAGE)
    ]
    await until("the API server is asked", lambda: hub.api.asked.total() >= 4)
    try:
        yield sent
    finally:
        hub.api.refusing.set()
        await asyncio.gather(*sent)


@pytest.mark.guarantee("ports-are-guarded")
async def test_wrong_tokens_from_one_address_keep_no_user_elsewhere_from_signing_in(
    hub: Hub,
) -> None:
    async with garbage(hub):
        assert await hub.status("good") == 200
        assert hub.api.asked.total() - hub.api.asked["Bearer good"] <= 4


@pytest.mark.guarantee("ports-are-guarded")
async def test_whoever_gets_no_turn_is_answered_soon_and_gets_one_later(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "_TURN_SECONDS", 0.2)
    async with garbage(hub) as sent:
        assert await hub.status("good", address="127.0.0.2") == 429
        answered = [each for each in sent if not each.done()]
        await until("those that wait are answered", lambda: sum(not s.done() for s in sent) <= 4)
        assert {each.result() for each in sent if each.done()} == {429}
        hub.api.refusing.set()
        await asyncio.gather(*answered)
        assert await hub.status("good", address="127.0.0.2") == 200


@pytest.mark.guarantee("ports-are-guarded")
async def test_a_refused_token_is_not_asked_about_again_for_a_while(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub.api.refusing.set()
    assert [await hub.status("wrong") for _ in range(5)] == [401] * 5
    assert hub.api.asked["Bearer wrong"] == 1
    monkeypatch.setattr(sign_in, "_MOST_REFUSED", 1)
    assert await hub.status("other") == 401
    assert await hub.status("wrong") == 401
    assert hub.api.asked["Bearer wrong"] == 2
    monkeypatch.setattr(sign_in, "_REFUSED_SECONDS", 0.0)
    assert await hub.status("third") == 401
    assert await hub.status("third") == 401
    assert hub.api.asked["Bearer third"] == 2
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
