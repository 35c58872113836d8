"""Which errors repeat a request, how often, and after which pauses."""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_kube.errors import Conflict, KubeError, NotFound, TryLater
from elasticjob_kube.retry import retry


class Server:
    """Answers with errors first, then with "done"; keeps the pauses between the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: KubeError) -> None:
        self.errors = list(errors)
        self.pauses: list[float] = []
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def call(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_a_call_is_repeated_after_growing_pauses_or_as_the_server_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(
        monkeypatch,
        TryLater(0, "", ""),
        Conflict(409, "", ""),
        TryLater(429, "", "", retry_after=7.0),
    )
    assert await retry(server.call, (TryLater, Conflict), pauses=(0.1, 0.5, 1.0)) == "done"
    assert server.pauses == [0.1, 0.5, 7.0]


async def test_the_error_of_the_last_call_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    last = TryLater(500, "", "still")
    server = Server(monkeypatch, TryLater(500, "", "once"), last)
    with pytest.raises(TryLater) as raised:
        await retry(server.call, TryLater, pauses=(0.1,))
    assert raised.value is last


@pytest.mark.parametrize("error", [NotFound(404, "", ""), TryLater(504, "", "")])
async def test_any_other_error_is_raised_at_once(
    monkeypatch: pytest.MonkeyPatch, error: KubeError
) -> None:
    server = Server(monkeypatch, error)
    with pytest.raises(type(error)):
        await retry(
            server.call, TryLater, pauses=(0.1, 0.5), unless=lambda error: error.status == 504
        )
    assert server.pauses == []
