"""A real master process without Kubernetes, and agents played by hand, for the tests of its services."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub

from tests.support.self_signed import self_signed

TOKEN = "a-token-of-these-tests"
SECONDS = 20.0


@cache
def certificates() -> tuple[str, str]:
    """Return a self-signed certificate for the master's names, and its key."""
    pair = self_signed(names.TLS_SERVER_NAME)
    return pair.certificate_pem.decode(), pair.key_pem.decode()


@dataclass
class Master:
    """One running master."""

    process: asyncio.subprocess.Process
    log: Path
    grpc_port: int = 0
    http_port: int = 0
    ends_with: int = 0
    address: str = "127.0.0.1"
    insecure: bool = False

    def channel(self, token: str | None = TOKEN) -> grpc.aio.Channel:
        """Return a channel that shows a token."""
        if self.insecure:
            return grpc.aio.insecure_channel(f"{self.address}:{self.grpc_port}")
        credentials = grpc.ssl_channel_credentials(certificates()[0].encode())
        if token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
        options = [("grpc.ssl_target_name_override", names.TLS_SERVER_NAME), ("grpc.enable_http_proxy", 0)]
        return grpc.aio.secure_channel(f"{self.address}:{self.grpc_port}", credentials, options=options)

    async def kill(self) -> None:
        """End it as a lost node would."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def run_master(
    folder: Path,
    *options: str,
    env: dict[str, str] | None = None,
    ports: tuple[int, int] = (0, 0),
    address: str = "127.0.0.1",
) -> AsyncIterator[Master]:
    """Start a master and wait until it serves; SIGTERM it in the end, and require that it goes in peace."""
    certificate, key = certificates()
    environment = {
        **os.environ,
        names.ENV_TOKEN: TOKEN,
        names.ENV_CA: certificate,
        names.ENV_TLS_CERT: certificate,
        names.ENV_TLS_KEY: key,
        **(env or {}),
    }
    log = folder / "master.log"
    command = [str(Path(sys.executable).with_name("elasticjob-master")), *options, f"--address={address}"]
    command += [f"--grpc-port={ports[0]}", f"--http-port={ports[1]}"]
    with log.open("ab") as output:
        start = output.tell()
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
    master = Master(process, log, address=address, insecure="--insecure" in options)
    try:
        async with asyncio.timeout(SECONDS):
            while not (found := re.search(rb"gRPC on \S+:(\d+), HTTP on port (\d+)", log.read_bytes()[start:])):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        master.grpc_port, master.http_port = int(found[1]), int(found[2])
        yield master
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SECONDS):
                await process.wait()
    if process.returncode != -signal.SIGKILL:
        assert process.returncode == master.ends_with, log.read_text()


@dataclass
class Agent:
    """An agent by hand: registered and connected, its process runs as it is told."""

    index: int
    incarnation: int = 0
    running: int = 0
    commands: list[pb.MasterMessage] = field(default_factory=list)
    started: list[pb.Start] = field(default_factory=list)
    stream: Any = None
    task: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def uid(self) -> str:
        """Its pod's UID."""
        return f"uid-{self.index}-{self.incarnation}"

    @property
    def name(self) -> str:
        """Its pod's name."""
        return names.member_pod("job", "worker", self.index, self.incarnation)

    def registration(self) -> pb.RegisterRequest:
        """Return what it registers with."""
        return pb.RegisterRequest(
            pod_name=self.name,
            pod_uid=self.uid,
            role="worker",
            index=self.index,
            incarnation=self.incarnation,
            address=f"127.0.1.{self.index + 1}",
            slots=1,
        )

    async def join(self, channel: grpc.aio.Channel, *, obey: bool = True) -> Agent:
        """Register, open the stream, and from then on do what the master says (or only listen)."""
        stub = AgentServiceStub(channel)
        await stub.Register(self.registration(), timeout=SECONDS, wait_for_ready=True)
        self.stream = stub.Connect()
        await self.send(hello=pb.Hello(pod_uid=self.uid, running_round=self.running))
        self.task = asyncio.create_task(self._listen(self.stream, obey))
        return self

    async def send(self, **message: Any) -> None:
        """Send one message; grpc takes one at a time."""
        async with self.sending:
            await self.stream.write(pb.AgentMessage(**message))

    async def _listen(self, stream: Any, obey: bool) -> None:
        try:
            async for command in stream:
                self.commands.append(command)
                if obey:
                    await self._obey(command)
        except grpc.aio.AioRpcError:
            return

    async def _obey(self, command: pb.MasterMessage) -> None:
        kind = command.WhichOneof("command")
        if kind == "start":
            self.running = command.start.world.round
            self.started.append(command.start)
            await self.send(started=pb.ProcessStarted(round=self.running))
        elif kind in ("stop", "drain") and self.running:
            ended, self.running = self.running, 0
            await self.send(exited=pb.ProcessExited(round=ended, asked=True))
        if kind in ("drain", "exit"):
            await self.stream.done_writing()
            self.ended.set()

    async def heartbeat(self) -> None:
        """Say that it lives."""
        await self.send(heartbeat=pb.Heartbeat(usage=pb.ResourceUsage(cpu_cores=0.5, memory_bytes=1000)))

    async def leave(self) -> None:
        """Break the stream, as a lost pod does."""
        self.stream.cancel()
        if self.task is not None:
            await asyncio.wait({self.task})
