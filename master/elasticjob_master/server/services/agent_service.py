"""AgentService: registration, and one stream for each agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from elasticjob_api.limits import LISTED_MEMBERS
from elasticjob_api.refusals import BadRequest, UnknownName
from elasticjob_api.step_report import report_of
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_master.agent_streams import Send
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous import commands, member_events
from elasticjob_master.core.rendezvous.current_process import check_round
from elasticjob_master.core.rendezvous.members import Link, Member
from elasticjob_master.server import protobuf
from elasticjob_master.server.callers import Callers
from elasticjob_master.server.services.agent_stream import (
    CONCURRENT_WRITES,
    AgentStream,
    Context,
    Render,
    WriteTurns,
    in_turn,
)
from elasticjob_master.server.services.world_messages import WorldMessages

log = logging.getLogger(__name__)

_MAX_PLAN_BYTES = 64 * 1024
NAME = pb.DESCRIPTOR.services_by_name["AgentService"].full_name


class AgentService:
    """Serves the agents' registrations and streams."""

    def __init__(
        self, controller: Controller, callers: Callers, listed_members: int = LISTED_MEMBERS
    ) -> None:
        self._controller = controller
        self._callers = callers
        self._listed_members = listed_members
        self._world_messages: WorldMessages | None = None
        self._turns = WriteTurns()
        self._answer_turns = asyncio.Semaphore(CONCURRENT_WRITES)
        self._imports: dict[str, bytes] = {}
        """What the program of each role imports. A new master learns it from the agents."""

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the service's methods.

        The generated code would do, except that Connect writes messages that are serialized
        already.
        """
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Register": grpc.unary_unary_rpc_method_handler(
                    self.Register,
                    pb.RegisterRequest.FromString,
                    pb.RegisterResponse.SerializeToString,
                ),
                "GetImports": grpc.unary_unary_rpc_method_handler(
                    self.GetImports,
                    pb.GetImportsRequest.FromString,
                    pb.GetImportsResponse.SerializeToString,
                ),
                "GetWorldOfRound": grpc.unary_unary_rpc_method_handler(
                    self.GetWorldOfRound, pb.GetWorldOfRoundRequest.FromString
                ),
                "Connect": grpc.stream_stream_rpc_method_handler(
                    self.Connect, pb.AgentMessage.FromString
                ),
            },
        )

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        controller = self._controller
        roles = controller.rendezvous.sizes or controller.framework.roles
        controller.register(protobuf.identity(request, roles))
        intervals = controller.intervals
        return pb.RegisterResponse(
            heartbeat_seconds=intervals.heartbeat,
            lost_seconds=controller.rendezvous.timing.lost,
            report_seconds=intervals.report,
        )

    async def GetImports(
        self, request: pb.GetImportsRequest, _context: Any
    ) -> pb.GetImportsResponse:
        return pb.GetImportsResponse(plan=self._imports.get(request.role, b""))

    async def GetWorldOfRound(self, request: pb.GetWorldOfRoundRequest, context: Any) -> bytes:
        # All members may ask at the same time: the turns bound the copies in memory.
        await in_turn(self._answer_turns, context)
        check_round(request.round, self._controller.rendezvous.round)
        return self._messages_of_world().answer

    async def Connect(self, messages: AsyncIterator[pb.AgentMessage], context: Context) -> None:
        stream = AgentStream(context, self._turns)
        first = await stream.read()
        if first is None:
            return

        def send(command: commands.Command) -> None:
            stream.send(self._render(command, first.hello))

        member = self._welcome(first, send)
        try:
            with self._callers.agent(context, member.uid):
                await stream.serve(partial(self._take, member))
        finally:
            self._controller.disconnect(member.uid, send)

    def _welcome(self, first: pb.AgentMessage, send: Send) -> Member:
        """Connect the member whose stream begins with this message, which must be a hello."""
        if first.WhichOneof("message") != "hello":
            raise BadRequest("the first message of a stream must be hello")
        uid = first.hello.pod_uid
        round_ = first.hello.running_round
        joined = first.hello.joined_round
        latest = self._controller.rendezvous.latest_given_round
        for field, claimed in (("running_round", round_), ("joined_round", joined)):
            if claimed > latest:
                raise BadRequest(
                    f"{field} is {claimed}; it must be at most {latest}, "
                    "the latest that a master of this job can have given"
                )
        event = member_events.MemberConnected(
            uid, round_, joined, draining=first.hello.draining, watches=first.hello.watches
        )
        leases = [protobuf.leases(each) for each in first.hello.leased]
        member = self._controller.connect(event, send, leases, complete=first.hello.leased_all)
        if member is None:
            raise UnknownName(
                f"pod UID {uid[:128]!r} is not a member of this job; call Register first"
            )
        return member

    def _take(self, member: Member, message: pb.AgentMessage) -> None:
        controller = self._controller
        match message.WhichOneof("message"):
            case "heartbeat":
                standby = protobuf.standby(message.heartbeat)
                usage = protobuf.usage(message.heartbeat.usage)
                controller.heartbeat(member.uid, usage, standby)
            case "step":
                controller.step(member, report_of(message.step))
            case "started":
                controller.handle(member_events.ProcessStarted(member.uid, message.started.round))
            case "exited":
                controller.exited(member, _process_exited(member, message.exited))
            case "restarted":
                report = message.restarted
                controller.restarted(member, report.restarts, report.exit_code, report.message)
            case "joined":
                controller.handle(member_events.PlaceTaken(member.uid, message.joined.round))
            case "world_left":
                left = message.world_left
                controller.handle(member_events.WorldLeft(member.uid, left.round, left.ends))
            case "leaving":
                self._leave(member)
            case "check":
                controller.handle(_node_checked(member, message.check))
            case "script":
                ended = message.script
                controller.scripts.ended(member, ended.id, ended.exit_code, ended.message)
            case "imports" if len(message.imports.plan) <= _MAX_PLAN_BYTES:
                self._imports[member.identity.role] = message.imports.plan
            case "stacks":
                processes = protobuf.stacks(message.stacks)
                controller.stacks.answer(member.uid, message.stacks.number, processes)
            case "unreached":
                ago = message.unreached.began_milliseconds_ago / 1000
                address = message.unreached.address
                controller.handle(member_events.NodeUnreached(member.uid, address, ago))
            case "probed":
                found = message.probed
                unreached = frozenset(found.unreached)
                controller.handle(member_events.NodesProbed(member.uid, found.number, unreached))
            case "hello" if message.hello.draining:
                self._leave(member)

    def _leave(self, member: Member) -> None:
        pod = member.identity.pod_name
        log.info("%s was asked by its node to end", pod, extra={"member": pod})
        self._controller.handle(member_events.MemberLeaving(member.uid))

    def _render(self, command: commands.Command, hello: pb.Hello) -> Render | None:
        """Return a function that serializes the message of a command; None ends the stream.

        Args:
            command: the command.
            hello: says which form of a world the agent reads.
        """
        packed = hello.reads_packed_worlds
        match command:
            case commands.Start(uid=uid):
                return partial(
                    self._messages_of_world_with(uid).start,
                    uid,
                    packed=packed,
                    fetches=hello.fetches_worlds,
                    crash_excused=command.crash_excused,
                    goes_on=command.continues,
                )
            case commands.WorldChanged(uid=uid):
                messages = self._messages_of_world_with(uid)
                return partial(messages.world_changed, uid, packed=packed)
            case commands.ReleaseLeases() | commands.MemberRemoved() | commands.CloseStream():
                return None
            case _:
                return lambda: _message(command).SerializeToString()

    def _messages_of_world_with(self, uid: str) -> WorldMessages:
        messages = self._messages_of_world()
        return messages if uid in messages else self._prepare_messages()

    def _messages_of_world(self) -> WorldMessages:
        messages = self._world_messages
        if messages is None or messages.process_round != self._controller.rendezvous.round:
            messages = self._prepare_messages()
        return messages

    def _prepare_messages(self) -> WorldMessages:
        rendezvous = self._controller.rendezvous
        members = list(rendezvous.world_members())
        framework = self._controller.framework
        messages = WorldMessages(rendezvous.round, members, framework, self._listed_members)
        self._world_messages = messages
        return messages


def _message(
    command: commands.Stop
    | commands.Drain
    | commands.Exit
    | commands.Check
    | commands.Configure
    | commands.HostsUpdated
    | commands.RunScript
    | commands.CollectStacks
    | commands.Watch
    | commands.Probe,
) -> pb.MasterMessage:
    match command:
        case commands.Stop():
            stop = pb.Stop(round=command.round, grace_seconds=command.grace_seconds)
            return pb.MasterMessage(stop=stop)
        case commands.Drain():
            return pb.MasterMessage(drain=pb.Drain(grace_seconds=command.grace_seconds))
        case commands.Exit():
            return pb.MasterMessage(exit=pb.Exit(problem=command.problem))
        case commands.Check():
            check = pb.Check(
                number=command.number,
                peers=command.peers,
                command=command.command,
                timeout_seconds=command.timeout_seconds,
            )
            return pb.MasterMessage(check=check)
        case commands.Configure():
            configure = pb.Configure(
                heartbeat_seconds=command.heartbeat_seconds, report_seconds=command.report_seconds
            )
            return pb.MasterMessage(configure=configure)
        case commands.HostsUpdated():
            return pb.MasterMessage(hosts_updated=pb.HostsUpdated(round=command.round))
        case commands.RunScript():
            script = pb.RunScript(
                id=command.id,
                script=command.script,
                environment=dict(command.environment),
                pods=command.pods,
                timeout_seconds=command.timeout_seconds,
            )
            return pb.MasterMessage(run_script=script)
        case commands.CollectStacks():
            stacks = pb.CollectStacks(number=command.number, may_pause=command.may_pause)
            return pb.MasterMessage(collect_stacks=stacks)
        case commands.Watch():
            return pb.MasterMessage(watch=pb.Watch(addresses=command.addresses))
        case commands.Probe():
            probe = pb.Probe(number=command.number, addresses=command.addresses)
            return pb.MasterMessage(probe=probe)


def _node_checked(member: Member, found: pb.CheckResult) -> member_events.NodeChecked:
    return member_events.NodeChecked(
        member.uid,
        found.number,
        found.seconds,
        found.problem,
        tuple(found.unreached),
        {of.address: Link(of.round_trip_seconds, of.bytes_per_second) for of in found.links},
        found.device,
        found.device_seconds,
    )


def _process_exited(member: Member, exited: pb.ProcessExited) -> member_events.ProcessExited:
    log.info(
        "%s: process of round %d exited with %d (requested: %s)",
        member.identity.pod_name,
        exited.round,
        exited.exit_code,
        exited.asked,
        extra={"member": member.identity.pod_name},
    )
    return member_events.ProcessExited(
        member.uid,
        exited.round,
        exited.exit_code,
        requested=exited.asked,
        retry=exited.retry,
        failed_seconds_ago=exited.failed_milliseconds_ago / 1000,
        node_problem=exited.node_problem,
    )
