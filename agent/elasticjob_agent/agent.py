"""Runs the agent: turns commands, signals and exits into events, and executes the decisions."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.frameworks import launchers
from elasticjob_api.last_words import exit_text
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent import (
    agent_messages,
    broken_node,
    events,
    host_files,
    termination,
)
from elasticjob_agent.broken_node import KernelLog
from elasticjob_agent.config import Config
from elasticjob_agent.events import Action, Event, Launch
from elasticjob_agent.horovod.horovod_rendezvous import HorovodRendezvous
from elasticjob_agent.lifecycle import State, decide
from elasticjob_agent.log import say, without_harm
from elasticjob_agent.master_connection import MasterConnection, open_channel
from elasticjob_agent.node_check import NodeCheck
from elasticjob_agent.process import ProcessSupervisor, TrainingProcesses
from elasticjob_agent.process_environment import launcher_of, reads_hosts
from elasticjob_agent.readiness import Readiness
from elasticjob_agent.remote_shell import programs
from elasticjob_agent.scripts import Scripts
from elasticjob_agent.stacks import Stacks
from elasticjob_agent.state.calls import StateCalls
from elasticjob_agent.torchrun_ranks import RankWatch
from elasticjob_agent.training_socket import TrainingSocket
from elasticjob_agent.usage import UsageMonitor
from elasticjob_agent.watched_peers import WatchedPeers

FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
FINAL_MESSAGES_SECONDS = 2.0


@dataclass(frozen=True)
class VerdictTimeouts:
    """Seconds to wait for the master's decision after a process has ended by itself."""

    success: float = 10.0
    failure: float = 60.0
    """Counted only while the master is disconnected: a connected one may need more time."""


class Agent:
    """One agent, for the life of its pod."""

    def __init__(
        self,
        config: Config,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeouts: VerdictTimeouts,
    ) -> None:
        """Create all parts; needs the running event loop."""
        self._config = config
        self._launcher = launcher_of(config, command)
        command = launchers.with_world(command) if self._launcher else command
        self._command = command
        self._environment = environment
        self._timeouts = timeouts
        self._state = State(restarts_left=config.process_restart_limit)
        self._channel = open_channel(config)
        self._connection = MasterConnection(config, self._channel, self)
        self._state_calls = StateCalls(config)
        self._training_socket = TrainingSocket(
            channel=self._channel,
            pod_uid=config.pod_uid,
            on_report=self._connection.report,
            on_world_joined=self._report_joined,
            on_world_left=self._report_left,
            handlers=self._state_calls.handlers,
        )
        self._horovod = HorovodRendezvous(
            self._channel, config.pod_uid, on_joined=self._report_joined
        )
        self._readiness = Readiness(config.address, config.token)
        self._peers = WatchedPeers(config.token, self._spawn_aid, self._connection.send)
        environment, self._host_files = host_files.for_launcher(
            environment, self._training_socket.path.parent, self._channel
        )
        self._environment = environment
        self._usage_monitor = UsageMonitor(config.memory_limit)
        # Processes that enter a new world without a new start need none in standby.
        standby = config.standby in ("Auto", "Always") and not config.in_process_elastic
        self._supervisor = ProcessSupervisor(
            command,
            environment,
            self._usage_monitor.memory if standby else None,
            launches=self._launcher is launchers.TORCHRUN,
            within_limit=config.standby == "Auto",
        )
        self._scripts = Scripts(
            self._supervisor,
            {**environment, names.ENV_SOCKET: str(self._training_socket.path)},
            self._connection.send,
        )
        self._processes: TrainingProcesses | None = None
        self._node_check = NodeCheck(environment, command, config.token)
        self._stacks = Stacks(
            self._training_socket,
            lambda: self._usage_monitor.memory().left,
            self._launcher.mark if self._launcher else None,
        )
        self._imports: pb.AgentMessage | None = None
        self._end_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Run until this member ends; returns the exit code of the container."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._handle_sigterm)
        for number in FORWARDED:
            loop.add_signal_handler(number, self._forward_signal, number)
        await self._state_calls.open()
        await self._training_socket.open()
        if self._config.in_process_elastic:
            await self._horovod.open()
        if self._host_files is not None:
            self._spawn_aid("the list of hosts", self._host_files.run())
        if self._supervisor.standby is not None:
            standby = self._supervisor.standby.run(self._send_imports)
            self._spawn_aid("the standby of processes", standby)
        connection_task = self._spawn(self._join())
        try:
            code = await self._exit_code
        finally:
            await self._shut_down(connection_task)
        termination.write(self._environment, self._last_words(code))
        return code

    async def _join(self) -> None:
        """Connect to the master until the end; before, import what the others have imported."""
        if self._supervisor.standby is not None and not self._supervisor.standby.is_closed:
            imports = await self._connection.imports()
            await self._supervisor.import_first(
                imports, 1 if self._launcher else self._config.slots
            )
        await self._connection.run()

    def _send_imports(self, imports: bytes) -> None:
        """Send what the program imports, if this is the first member of its role in the world."""
        members = self._state.running.world.members if self._state.running else ()
        first = next((m.pod_name for m in members if m.role == self._config.role), None)
        if first == self._config.pod_name:
            self._imports = pb.AgentMessage(imports=pb.Imports(plan=imports))
            self._connection.send(self._imports)

    def _last_words(self, code: int) -> str:
        last = self._state.last_exit
        if last and last.node_problem and code:
            return f"{last.message}\nelasticjob-agent: broken node: {last.node_problem}".strip()
        if self._state.node_problem:
            return f"node check: {self._state.node_problem}"
        return last.message if last and code else ""

    # --- called by the connection to the master (ConnectionHandler)

    async def on_registered(self) -> None:
        """Open the readiness port: the master has accepted this agent as a member."""
        await self._readiness.announce()
        if self._host_files is not None:
            await self._host_files.first_list()
        self._horovod.master_connected()

    def initial_messages(self) -> Iterator[pb.AgentMessage]:
        """Yield a Hello with the running round, and the latest exit if no command followed it."""
        state = self._state
        running = state.running.round if state.running else 0
        joined = self._horovod.joined_round or self._training_socket.present.joined_round
        yield pb.AgentMessage(
            hello=pb.Hello(
                pod_uid=self._config.pod_uid,
                running_round=running,
                draining=state.draining,
                joined_round=joined,
                leased=self._training_socket.leased_shards(),
                leased_all=True,
                reads_packed_worlds=True,
                fetches_worlds=not reads_hosts(self._command, self._environment),
                watches=True,
            )
        )
        if state.last_exit is not None:
            yield agent_messages.exited(state.last_exit)
        if self._imports is not None:
            yield self._imports

    def handle_command(self, command: pb.MasterMessage) -> None:
        """Carry out a command; one that it cannot read is left to the master's time-out."""
        problem = agent_messages.unpack_world(command)
        if problem is not None:
            say(f"a command is ignored: {problem}")
            return
        match command.WhichOneof("command"):
            case "start":
                launch = agent_messages.launch(
                    command.start,
                    self._config,
                    self._command,
                    self._environment,
                    socket=self._training_socket.path,
                    horovod=self._horovod,
                )
                self._handle(launch)
            case "stop":
                self._handle(
                    events.StopRequested(round=command.stop.round, grace=command.stop.grace_seconds)
                )
            case "drain":
                self._handle(events.DrainRequested(grace=command.drain.grace_seconds))
            case "exit":
                self._handle(events.ExitRequested(problem=command.exit.problem))
            case "hosts_updated":
                self._horovod.announce(command.hosts_updated.round)
            case "world_changed":
                self._handle(events.WorldChanged())
                self._training_socket.change_world(command.world_changed)
            case "check":
                self._spawn_aid("the node check", self._check_node(command.check))
            case "run_script":
                self._spawn_aid("a script", self._scripts.run(command.run_script))
            case "collect_stacks":
                stacks = self._collect_stacks(command.collect_stacks)
                self._spawn_aid("the collection of stacks", stacks)
            case "watch":
                self._peers.watch(command.watch.addresses)
            case "probe":
                self._spawn_aid("a probe of members", self._peers.probe(command.probe))

    def heartbeat(self) -> pb.Heartbeat:
        """Return the newest measurement of CPU, memory and GPUs, and what is in standby."""
        standby = self._supervisor.standby
        return pb.Heartbeat(
            usage=agent_messages.usage(*self._usage_monitor.latest()),
            in_standby=standby.ready if standby else 0,
            why_no_standby=standby.why_none if standby else "",
        )

    # --- events

    def _report_joined(self, round_: int) -> None:
        self._connection.send(pb.AgentMessage(joined=pb.Joined(round=round_)))

    def _report_left(self, round_: int, ends: bool) -> None:
        self._connection.send(pb.AgentMessage(world_left=pb.WorldLeft(round=round_, ends=ends)))

    def _handle_sigterm(self) -> None:
        self._handle(events.DrainRequested(grace=self._config.drain_seconds, by_node=True))

    def _forward_signal(self, number: int) -> None:
        if self._processes is not None:
            self._processes.signal(number)

    def _handle(self, event: Event) -> None:
        restarts_left = self._state.restarts_left
        self._state, actions = decide(self._state, event)
        self._training_socket.leaving = self._state.draining or self._state.exiting
        if self._supervisor.standby is not None and (self._state.draining or self._state.exiting):
            self._supervisor.standby.close()
        if self._state.restarts_left < restarts_left:
            say(f"the training process has failed{_how(event)} and is restarted")
            if isinstance(event, events.ProcessEnded):
                restarts = self._config.process_restart_limit - self._state.restarts_left
                self._connection.send(agent_messages.restarted(event, restarts))
        for action in actions:
            self._execute(action)

    # --- actions

    def _execute(self, action: Action) -> None:
        match action:
            case Launch():
                self._launch(action)
            case events.Exited():
                self._connection.send(agent_messages.exited(action))
            case events.EndProcess():
                if self._end_task is not None:
                    self._end_task.cancel()
                if self._processes is not None:
                    ending = self._processes.end(
                        action,
                        socket=self._training_socket,
                        leaves_by_itself=lambda: (
                            bool(self._horovod.joined_round) or programs.is_worker(self._command)
                        ),
                        sigterm_delay_seconds=self._config.sigterm_delay_seconds,
                    )
                    self._end_task = self._spawn(ending)
            case events.ReportLeaving():
                self._connection.send(pb.AgentMessage(leaving=pb.Leaving()))
            case events.AwaitVerdict():
                self._spawn(self._await_verdict())
            case events.Quit():
                if not self._exit_code.done():
                    self._exit_code.set_result(action.code)

    def _launch(self, launch: Launch) -> None:
        self._training_socket.begin_round(launch.round, launch.world, len(launch.variables))
        self._horovod.begin_processes(launch.round, launch.first_rank, len(launch.variables))
        self._connection.send(pb.AgentMessage(started=pb.ProcessStarted(round=launch.round)))
        if self._launcher is launchers.DEEPSPEED:
            members = launch.world.members
            hosts = [f"{each.pod_name} slots={max(1, each.processes)}\n" for each in members]
            Path(launch.variables[0][launchers.HOST_FILE]).write_text("".join(hosts))
        kernel_log = KernelLog()
        self._processes = self._supervisor.start(launch.variables, first_rank=launch.first_rank)
        watch = None
        if self._launcher is not None:
            size = int(launch.variables[0]["PET_NPROC_PER_NODE"])
            watch = RankWatch(size, self._launcher.mark, self._supervisor.in_standby)
        self._spawn(self._wait_for_exit(self._processes, watch, kernel_log))

    async def _check_node(self, request: pb.Check) -> None:
        result = await self._node_check.run(request)
        if result is not None:
            self._connection.send(pb.AgentMessage(check=result))

    async def _collect_stacks(self, request: pb.CollectStacks) -> None:
        roots = self._processes.pids if self._processes is not None else []
        stacks = await self._stacks.collect(request, roots, self._supervisor.in_standby())
        if stacks is not None:
            self._connection.send(pb.AgentMessage(stacks=stacks))

    async def _wait_for_exit(
        self, processes: TrainingProcesses, watch: RankWatch | None, kernel_log: KernelLog
    ) -> None:
        """Wait until the processes have exited, and raise the events of that."""
        kills = self._usage_monitor.memory_kills()
        watching = self._spawn_aid("the watch of ranks", watch.run()) if watch else None
        failed = await processes.failure()
        orphaned = failed is None and watch is not None and watch.some_run()
        if failed is not None and len(processes) > 1:
            self._training_socket.process_ended(failed)
            self._handle(
                events.ProcessFailed(confirmed=self._training_socket.present.stop_confirmed)
            )
        code, message = await processes.wait()
        failed_at = (watch and watch.failed_at) or processes.failed_at
        if orphaned:
            code = 1
            message = "elasticjob-agent: the launcher has ended before its processes"
        elif code and watch is not None and self._launcher is not launchers.TORCHRUN:
            code = watch.code or code
            if self._launcher is launchers.DEEPSPEED and 192 <= code < 255:
                code = 128 + 256 - code  # it ends with the negative number of the signal
        if watching is not None:
            watching.cancel()
        if code == 128 + signal.SIGKILL and self._usage_monitor.memory_kills() > kills:
            message = f"{message}\nelasticjob-agent: {names.KILLED_FOR_MEMORY}".strip()
        problem = ""
        if code:
            problem = broken_node.in_output(processes.last_lines()) or kernel_log.problem()
        kernel_log.close()
        await self._training_socket.wait_until_disconnected()
        self._connection.processes_ended()
        if self._end_task is not None:
            self._end_task.cancel()
            self._end_task = None
        self._processes = None
        self._horovod.processes_ended()
        # Horovod's processes end by an error when their member is removed.
        confirmed = self._training_socket.present.stop_confirmed or self._horovod.removed
        self._handle(
            events.ProcessEnded(
                code=code,
                message=message,
                confirmed=confirmed,
                failed_at=failed_at,
                node_problem=problem,
            )
        )

    async def _await_verdict(self) -> None:
        last = self._state.last_exit
        assert last is not None
        if last.code == 0:
            await asyncio.sleep(self._timeouts.success)
        else:
            while (seconds := self._connection.disconnected_seconds) < self._timeouts.failure:  # noqa: ASYNC110 (rare)
                await asyncio.sleep(self._timeouts.failure - seconds)
        if self._state.last_exit is last:
            self._handle(events.VerdictTimedOut())

    def _spawn_aid(self, what: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin work whose failure does not end this agent: the training does not depend on it."""
        return self._spawn(without_harm(what, work))

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin work whose failure ends this agent."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._exit_code.done():
            return
        error = task.exception()
        if error is not None:
            self._exit_code.set_exception(error)

    async def _shut_down(self, connection_task: asyncio.Task[None]) -> None:
        """Send the remaining messages to a connected master, then stop everything."""
        self._connection.close()
        if self._connection.disconnected_seconds == 0.0:
            await asyncio.wait({connection_task}, timeout=FINAL_MESSAGES_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._processes is not None:
            self._processes.kill()
        if self._supervisor.standby is not None:
            self._supervisor.standby.close()
        self._node_check.end()
        self._stacks.end()
        self._readiness.close()
        await self._training_socket.close()
        await self._state_calls.close()
        await self._horovod.close()
        await self._channel.close()


def _how(event: Event) -> str:
    if isinstance(event, events.ProcessEnded):
        return f" with {exit_text(event.code)}"
    return ""


def run(
    config: Config,
    command: Sequence[str],
    environment: Mapping[str, str],
    timeouts: VerdictTimeouts | None = None,
) -> int:
    """Run an agent until its end; returns the exit code of the container."""

    async def run_agent() -> int:
        return await Agent(config, command, environment, timeouts or VerdictTimeouts()).run()

    code = asyncio.run(run_agent())
    sys.stderr.flush()
    return code
