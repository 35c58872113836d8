"""The socket of a run on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from elasticjob_cli.common.local_runs import SOCKET
from elasticjob_cli.run import control


@pytest.mark.guarantee("local-run")
async def test_who_has_connected_before_the_end_is_told_it_although_the_request_comes_later(
    tmp_path: Path,
) -> None:
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = control.serve(tmp_path, lambda _: control.Answer(), outcome)
    await serving.__aenter__()
    reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET)
    await control.request(tmp_path, control.Show())  # the run has the earlier connection, too
    outcome.set_result("Succeeded")
    end = asyncio.create_task(serving.__aexit__(None, None, None))
    await asyncio.sleep(0)
    writer.write(msgspec.json.encode(control.AwaitEnd()) + b"\n")
    assert msgspec.json.decode(await reader.readline(), type=control.Answer).outcome == "Succeeded"
    await end
    writer.close()
