"""Sends lines of every kind to the agent's socket, next to a well-behaved training process."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
import pytest
from elasticjob_api import names
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub

from tests.support.agent_process import AGENT, agent_environment
from tests.support.fuzz.bystanders import GROWTH, MEGABYTE, OPTIONS
from tests.support.fuzz.random_messages import FLOATS, RandomMessages
from tests.support.master_process import run_master

TRAIN = """
    import os, pathlib, sys, time
    import elasticjob
    folder = pathlib.Path(sys.argv[1])
    (folder / "socket").write_text(os.environ["ELASTICJOB_SOCKET"])
    step = 0
    while not (folder / "finish").exists():
        time.sleep(0.02)
        step += 1
        elasticjob.report_step(step, total=10**6, samples=1)
"""
TOGETHER = 8
SECONDS = 60
KEYS: dict[str, tuple[Any, ...]] = {
    "id": (1, 2, "x", None, 1.5, [1], {"a": 1}),
    "call": (
        "create_dataset", "lease_shards", "report_shards", "hosts", "members", "checkpoint",
        "restore", "barrier",
        "set_value", "get_values", "add_value", "delete_value", "extend_dataset", "get_checkpoint",
        "restore_checkpoint", "may_commit", "rm", 7, None,
    ),
    "dataset": ("d", "e", "", 5),
    "size": (1, 10, 2**40),
    "shard_size": (1, 3),
    "epochs": (1, 2),
    "shuffle": (True, False, "no"),
    "seed": (0, 1),
    "count": (1, 2, 0),
    "done": ([0], [1, 2], [], [2**70], ["x"], 5, {"a": 1}),
    "returned": ([0], [3], ["x"]),
    "failed": ([0], [3], ["x"]),
    "parts": ([{"name": "a", "size": 3}], [["a", 3]], 4),
    "key": ("k", ""),
    "keys": (["k"], "k", [1]),
    "value": ("aGVsbG8=", "not base64!", 5),
    "state": ("aGVsbG8=", "not base64!", 5),
    "name": ("b", 5),
    "round": (0, 1, 2**64, -1),
    "wait_seconds": (0, 0.01, "x"),
    "step": (0, 1, 5, -1, 2**63, 2**64, "7", "x", 1e300),
    "total": (0, 10, -1, "x"),
    "samples": (1, 1.5, "x"),
    "seconds": (0.1, "x"),
    "compute_seconds": (0.1, "x"),
    "steps": (1, "x"),
    "metrics": ({"loss": 0.5}, {"loss": "x"}, {5: 5}, [1], "x"),
    "stoppable": (False, 1, "x"),
    "stopping": (False, 1, "x"),
    "left": (0, 1, 2**64, -1, "x", True, None, [1]),
    "ends": (True, False, 1, "x"),
}  # fmt: skip
"""Never `"stoppable": true` and the like: the agent rightly believes such statements."""


ODD_LINES = (
    b"", b"[", b"[1]", b'"x"', b"null", b"{}", b"[" * 3000, b"{" * 70_000, b"1e999", b"NaN",
)  # fmt: skip


def line(generator: RandomMessages) -> bytes:
    """Return a random line, well-formed or not."""
    rng = generator.rng
    if rng.random() < 0.1:
        return rng.randbytes(int(2 ** rng.uniform(0, 12))) + b"\n"
    if rng.random() < 0.1:
        return rng.choice(ODD_LINES) + b"\n"
    made: dict[str, Any] = {}
    for key in rng.sample(sorted(KEYS), rng.randrange(1, 9)):
        made[key] = _value(generator, key)
    if rng.random() < 0.6:
        made |= {"id": 1, "call": rng.choice(KEYS["call"])}
    data = json.dumps(made).encode()
    if rng.random() < 0.1:
        data = generator.corrupted(data)
    return data + b"\n"


def _value(generator: RandomMessages, key: str) -> Any:
    rng = generator.rng
    if rng.random() < 0.75:
        return rng.choice(KEYS[key])
    return rng.choice(
        (None, False, generator.text(), rng.choice(FLOATS), rng.getrandbits(70), [], {}, [[[]]])
    )


async def send_inputs(
    path: str, generator: RandomMessages, inputs: int, answers: Counter[str]
) -> None:
    """Write the lines over some connections at a time; some of them never read."""
    left = inputs

    async def some() -> None:
        nonlocal left
        while left > 0:
            reader, writer = await asyncio.open_unix_connection(path, limit=1 << 22)
            reading = None
            if generator.rng.random() < 0.8:
                reading = asyncio.create_task(_count(reader, answers))
            try:
                for _ in range(generator.rng.randrange(1, 100)):
                    left -= 1
                    writer.write(line(generator))
                    await asyncio.wait_for(writer.drain(), SECONDS)
                if reading is not None:
                    writer.write_eof()
                    await asyncio.wait({reading}, timeout=SECONDS)
            except ConnectionError:
                answers["closed"] += 1
            finally:
                writer.transport.abort()
                if reading is not None:
                    reading.cancel()

    await asyncio.gather(*(some() for _ in range(TOGETHER)))


async def _count(reader: asyncio.StreamReader, answers: Counter[str]) -> None:
    try:
        while data := await reader.readline():
            answers["error" if "error" in json.loads(data) else "result"] += 1
    except ConnectionError:
        return


@pytest.mark.guarantee("bad-input-is-refused")
async def test_no_line_on_the_socket_harms_the_agent_or_the_training(
    tmp_path: Path, network: str, inputs: int, seed: int
) -> None:
    inputs = inputs // 10
    host = f"{network}.1"
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    environment = agent_environment({}, master=host)
    options = (*OPTIONS, "--workers=1", "--insecure", f"--state-file={tmp_path / 'state'}")
    command = (AGENT, "run", "--", sys.executable, str(script), str(tmp_path))
    async with run_master(tmp_path, *options, ports=(names.GRPC_PORT, 0), address=host):
        with (tmp_path / "agent.log").open("wb") as log:
            agent = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=log, stderr=log
            )
        try:
            async with grpc.aio.insecure_channel(f"{host}:{names.GRPC_PORT}") as channel:
                await _step_beyond(channel, 5)
                path = (tmp_path / "socket").read_text()
                answers = Counter[str]()
                generator = RandomMessages(f"socket {seed}", {})
                await send_inputs(path, generator, inputs // 4, answers)
                process = psutil.Process(agent.pid)
                before = process.memory_info().rss
                await send_inputs(path, generator, inputs * 3 // 4, answers)
                grown = process.memory_info().rss - before
                print(f"{inputs} lines: grown by {grown / MEGABYTE:.1f} MiB; {dict(answers)}")
                assert grown <= GROWTH
                assert answers["error"]
                assert answers["result"]
                logged = (tmp_path / "agent.log").read_text(errors="replace")
                assert "Traceback" not in logged, logged[-8000:]
                status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
                assert (status.round, status.world_size) == (1, 1), "the training was disturbed"
                (tmp_path / "finish").touch()
                async with asyncio.timeout(SECONDS):
                    assert await agent.wait() == 0, logged
        finally:
            print((tmp_path / "agent.log").read_text(errors="replace")[-4000:])
            if agent.returncode is None:
                agent.terminate()
                await agent.wait()


async def _step_beyond(channel: grpc.aio.Channel, step: int) -> None:
    async for status in JobServiceStub(channel).WatchStatus(
        job_pb2.WatchStatusRequest(), timeout=SECONDS
    ):
        if status.progress.step > step:
            return
