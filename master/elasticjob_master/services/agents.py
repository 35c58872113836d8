"""AgentService: registration, and one stream per agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import grpc.aio
from elasticjob_api.frameworks import Peer
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceServicer
from google.protobuf.message import DecodeError

from elasticjob_master import translate
from elasticjob_master.controller import HEARTBEAT_SECONDS, Controller
from elasticjob_master.core.commands import Command, Drain, Exit, Release, Removed, Start, Stop
from elasticjob_master.core.members import Member, Refusal

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[pb.AgentMessage, pb.MasterMessage]"


class AgentService(AgentServiceServicer):
    """The agents' side of the master."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._next_command = 1
        self._rendered_round = 0
        self._world = pb.World()
        self._peers: list[Peer] = []
        self._ranks: dict[str, int] = {}

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:  # noqa: D102
        controller = self._controller
        try:
            controller.register(translate.identity(request, controller.rendezvous.sizes or controller.framework.roles))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Refusal as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        timing = controller.rendezvous.timing
        return pb.RegisterResponse(heartbeat_seconds=HEARTBEAT_SECONDS, lost_seconds=timing.lost)

    async def Connect(self, messages: AsyncIterator[pb.AgentMessage], context: Context) -> None:  # type: ignore[override]  # noqa: D102
        first = await _next(context)
        if first is None:
            return
        if first.WhichOneof("message") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a stream must be hello")
        hello, commands = first.hello, asyncio.Queue[pb.MasterMessage | None]()

        def send(command: Command) -> None:
            commands.put_nowait(self._render(command))

        member = self._controller.connect(
            hello.pod_uid, send, running_round=hello.running_round, draining=hello.draining
        )
        if member is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"pod UID {hello.pod_uid[:128]!r} is no member of this job; call Register first",
            )
        reader = asyncio.create_task(self._read(member, context, commands))
        try:
            while (message := await commands.get()) is not None:
                await context.write(message)
        finally:
            reader.cancel()
            self._controller.disconnect(hello.pod_uid, send)
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, member: Member, context: Context, commands: asyncio.Queue[pb.MasterMessage | None]) -> None:
        """Take what the agent tells until its stream ends; then let the writer end."""
        try:
            while (message := await _next(context)) is not None:
                self._take(member, message)
        finally:
            commands.put_nowait(None)

    def _take(self, member: Member, message: pb.AgentMessage) -> None:
        controller = self._controller
        match message.WhichOneof("message"):
            case "heartbeat":
                controller.heartbeat(member, translate.usage(message.heartbeat.usage))
            case "step":
                controller.step(member, translate.report(message.step))
            case "started":
                controller.started(member, message.started.round)
            case "exited":
                exited = message.exited
                log.info(
                    "%s: process of round %d ended with %d%s",
                    member.identity.pod_name,
                    exited.round,
                    exited.exit_code,
                    ", as asked" if exited.asked else "",
                )
                controller.exited(member, exited.round, exited.exit_code, asked=exited.asked)
            case "leaving":
                controller.leaving(member)
            case "hello" if message.hello.draining:
                controller.leaving(member)

    def _render(self, command: Command) -> pb.MasterMessage | None:
        """Return a command as a message; None ends the stream."""
        number, self._next_command = self._next_command, self._next_command + 1
        match command:
            case Start(uid=uid):
                return pb.MasterMessage(command_id=number, start=self._start(uid))
            case Stop():
                stop = pb.Stop(round=command.round, grace_seconds=command.grace_seconds)
                return pb.MasterMessage(command_id=number, stop=stop)
            case Drain():
                return pb.MasterMessage(command_id=number, drain=pb.Drain(grace_seconds=command.grace_seconds))
            case Exit():
                return pb.MasterMessage(command_id=number, exit=pb.Exit())
            case Release() | Removed():
                return None

    def _start(self, uid: str) -> pb.Start:
        rendezvous = self._controller.rendezvous
        if self._rendered_round != rendezvous.round or uid not in self._ranks:
            members = [m for m in map(self._controller.members.get, rendezvous.world) if m is not None]
            self._rendered_round = rendezvous.round
            self._peers = [translate.peer(member) for member in members]
            self._ranks = {member.uid: rank for rank, member in enumerate(members)}
            self._world = pb.World(round=rendezvous.round, members=map(translate.member, members))
        rank = self._ranks[uid]
        environment = self._controller.framework.environment(self._peers, rank)
        return pb.Start(world=self._world, rank=rank, environment=environment)


async def _next(context: Context) -> pb.AgentMessage | None:
    """Return the agent's next message, or None at the end of its stream; bytes that are no message end the stream."""
    try:
        message: object = await context.read()
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "these bytes are no elasticjob.v1.AgentMessage")
    return message if isinstance(message, pb.AgentMessage) else None
