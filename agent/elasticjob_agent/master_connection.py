"""Keeps the connection to the master: registers, keeps one stream open, and reconnects.

While the master is disconnected nothing is lost and nothing grows: reports are merged, and the
initial messages of the next stream repeat everything else.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import grpc
import grpc.aio
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.step_report import StepReport
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub

from elasticjob_agent import VERSION
from elasticjob_agent.config import Config
from elasticjob_agent.log import say
from elasticjob_agent.step_reports import PendingReports

REGISTER_SECONDS = 5.0
HEARTBEAT_SECONDS = 1.0
REPORT_SECONDS = 0.2
"""The intervals until the master sets others."""
FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
_QUIET_SECONDS = 30.0
"""An unreachable master is logged after this time: it starts together with the members, and a
master that is replaced returns within it."""

Stream = grpc.aio.StreamStreamCall[pb.AgentMessage, pb.MasterMessage]


class ConnectionHandler(Protocol):
    """Handles the events of a connection."""

    async def on_registered(self) -> None:
        """The master has accepted this agent as a member."""

    def initial_messages(self) -> Iterable[pb.AgentMessage]:
        """Return the first messages of a stream: a Hello, and what the master may have missed."""

    def handle_command(self, command: pb.MasterMessage) -> None:
        """Carry out a command."""

    def heartbeat(self) -> pb.Heartbeat:
        """Return the present use of resources, and what is in standby."""


def open_channel(config: Config) -> grpc.aio.Channel:
    """Open the channel to the job's master; the first call connects."""
    target = host_port(config.master_host, names.GRPC_PORT)
    options: list[tuple[str, str | int]] = [
        ("grpc.enable_http_proxy", 0),  # HTTP_PROXY may be set for the training's downloads
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 2000),  # how long one attempt to connect may take
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
    ]
    if config.ca is None or config.token is None:
        return grpc.aio.insecure_channel(target, options=options)
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(config.ca), grpc.access_token_call_credentials(config.token)
    )
    options.append(("grpc.ssl_target_name_override", names.TLS_SERVER_NAME))
    return grpc.aio.secure_channel(target, credentials, options=options)


class MasterConnection:
    """One agent's connection to its master."""

    def __init__(
        self, config: Config, channel: grpc.aio.Channel, handler: ConnectionHandler
    ) -> None:
        """Prepare to connect over a channel, on behalf of `handler`."""
        self._stub = AgentServiceStub(channel)
        self._handler = handler
        self._registration = pb.RegisterRequest(
            pod_name=config.pod_name,
            pod_uid=config.pod_uid,
            role=config.role,
            index=config.index,
            incarnation=config.incarnation,
            address=config.address,
            node_name=config.node_name,
            slots=config.slots,
            agent_version=VERSION,
        )
        self._messages: deque[pb.AgentMessage] = deque()
        self._reports = PendingReports()
        self._wake = asyncio.Event()
        self._heartbeat_seconds = HEARTBEAT_SECONDS
        self._report_seconds = REPORT_SECONDS
        self._closing = False
        self._connected = False
        self._disconnected_since = time.monotonic()

    @property
    def disconnected_seconds(self) -> float:
        """Seconds since the last stream ended; 0 while connected."""
        return 0.0 if self._connected else time.monotonic() - self._disconnected_since

    def send(self, message: pb.AgentMessage) -> None:
        """Send a message if connected; otherwise drop it: the initial messages will replace it."""
        if self._connected:
            self._messages.append(message)
            self._wake.set()

    def report(self, report: StepReport) -> None:
        """Merge a step report with the waiting ones, to be sent in the master's interval."""
        self._reports.add(report)
        self._wake.set()

    def processes_ended(self) -> None:
        """Send all step reports soon: no more will come from the present processes."""
        self._reports.processes_ended()

    async def imports(self) -> bytes:
        """Return what the program imports in other members.

        Empty if the master does not know it or cannot be reached, as at the start of a job.
        """
        request = pb.GetImportsRequest(role=self._registration.role)
        try:
            answer = await self._stub.GetImports(request, timeout=REGISTER_SECONDS)
        except grpc.aio.AioRpcError:
            return b""
        return answer.plan

    async def run(self) -> None:
        """Stay connected until closed."""
        delay = FIRST_RETRY_SECONDS
        logged = ""
        while not self._closing:
            try:
                await self._run_stream()
                delay = FIRST_RETRY_SECONDS
                logged = ""
            except grpc.aio.AioRpcError as error:
                if self._connected:
                    delay = FIRST_RETRY_SECONDS
                    logged = ""
                    self._disconnected()
                reason = f"{error.code().name}: {error.details()}"
                starting = (
                    error.code() is grpc.StatusCode.UNAVAILABLE
                    and self.disconnected_seconds < _QUIET_SECONDS
                )
                if reason != logged and not starting:
                    say(f"no connection to the master, retrying ({reason})")
                    logged = reason
            if self._connected:
                self._disconnected()
            if not self._closing:
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 (spreads the agents, no secret)
                delay = min(2 * delay, MAX_RETRY_SECONDS)

    def _disconnected(self) -> None:
        self._connected = False
        self._disconnected_since = time.monotonic()

    def close(self) -> None:
        """Let `run` end when the master has received the queued messages and the stream's end."""
        self._closing = True
        self._wake.set()

    async def _run_stream(self) -> None:
        terms = await self._stub.Register(self._registration, timeout=REGISTER_SECONDS)
        self._heartbeat_seconds = terms.heartbeat_seconds or HEARTBEAT_SECONDS
        self._report_seconds = terms.report_seconds or REPORT_SECONDS
        await self._handler.on_registered()
        stream: Stream = self._stub.Connect()
        self._messages.clear()
        self._messages.extend(self._handler.initial_messages())
        self._connected = True
        writer = asyncio.create_task(self._write(stream))
        try:
            async for command in stream:
                if command.HasField("configure"):
                    self._configure(command.configure)
                else:
                    self._handler.handle_command(command)
        finally:
            writer.cancel()
            stream.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _configure(self, terms: pb.Configure) -> None:
        """Change the intervals of heartbeats and reports."""
        self._heartbeat_seconds = terms.heartbeat_seconds or self._heartbeat_seconds
        self._report_seconds = terms.report_seconds or self._report_seconds
        self._wake.set()

    async def _write(self, stream: Stream) -> None:
        """Write messages at once, reports and heartbeats in their intervals, until closed."""
        heartbeat = report = -math.inf  # when the latest was written
        while True:
            now = time.monotonic()
            if len(self._reports) and self._messages and self._messages[0].HasField("exited"):
                await self._write_report(stream)  # the last step precedes the exit
            elif self._messages:
                await stream.write(self._messages.popleft())
            elif len(self._reports) and (now >= report + self._report_seconds or self._closing):
                await self._write_report(stream)
                report = now
            elif self._closing:
                await stream.done_writing()
                return
            elif now >= heartbeat + self._heartbeat_seconds:
                await stream.write(pb.AgentMessage(heartbeat=self._handler.heartbeat()))
                heartbeat = now
            else:
                due = report + self._report_seconds if len(self._reports) else math.inf
                await self._sleep(min(due, heartbeat + self._heartbeat_seconds) - now)

    async def _write_report(self, stream: Stream) -> None:
        report = self._reports.take()
        assert report is not None
        try:
            await stream.write(pb.AgentMessage(step=report.message()))
        except BaseException:
            self._reports.add(report)  # sent again on the next stream
            raise

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return
