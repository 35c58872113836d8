"""The agent at work: turns commands, signals and the process' end into events, and decisions into deeds."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent import lifecycle, termination
from elasticjob_agent.config import Config
from elasticjob_agent.lifecycle import Action, Event, Launch, State, decide
from elasticjob_agent.master_connection import Master, open_channel
from elasticjob_agent.node_check import NodeCheck
from elasticjob_agent.process import CannotStart, Process, Processes
from elasticjob_agent.readiness import Readiness
from elasticjob_agent.training_socket import Local
from elasticjob_agent.usage import Usages

FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
GOODBYE_SECONDS = 2.0


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for the master's word on a process that ended by itself."""

    success: float = 10.0
    failure: float = 60.0
    """Counted only while the master is away: one that is there has its reasons."""


class Agent:
    """One agent, for the life of its pod."""

    def __init__(
        self,
        config: Config,
        command: Sequence[str],
        environment: Mapping[str, str],
        patience: Patience,
    ) -> None:
        """Prepare; needs the running event loop."""
        self._config = config
        self._environment = environment
        self._patience = patience
        self._state = State(restarts_left=config.process_restart_limit)
        self._channel = open_channel(config)
        self._master = Master(config, self._channel, self)
        self._local = Local(channel=self._channel, pod_uid=config.pod_uid, on_report=self._master.report)
        self._readiness = Readiness(config.address)
        self._processes = Processes(command)
        self._process: Process | None = None
        self._node_check = NodeCheck(environment)
        self._usages = Usages()
        self._ending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._quit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Work until the member's end; returns the exit code."""
        self._processes.watch()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        for number in FORWARDED:
            loop.add_signal_handler(number, self._forward, number)
        await self._local.open()
        connection = self._spawn(self._master.run())
        try:
            code = await self._quit
        finally:
            await self._close(connection)
        last = self._state.last
        problem = f"node check: {self._state.problem}" if self._state.problem else ""
        termination.write(self._environment, problem or (last.message if last and code else ""))
        return code

    # --- what the connection asks of a member -----------------------------------------------------------------------

    async def accepted(self) -> None:
        """The master has taken this agent as a member."""
        await self._readiness.announce()

    def greeting(self) -> Iterator[pb.AgentMessage]:
        """Tell who is here and what runs, and how the latest process ended if no command has followed that."""
        state = self._state
        running = state.running.round if state.running else 0
        yield pb.AgentMessage(
            hello=pb.Hello(pod_uid=self._config.pod_uid, running_round=running, draining=state.draining)
        )
        if state.last is not None:
            yield _exited(state.last)

    def obey(self, command: pb.MasterMessage) -> None:
        """Turn a command into an event. A kind this agent does not know is left to the master's patience."""
        match command.WhichOneof("command"):
            case "start":
                self._handle(self._order(command.start))
            case "stop":
                self._handle(lifecycle.StopOrdered(round=command.stop.round, grace=command.stop.grace_seconds))
            case "drain":
                self._handle(lifecycle.DrainOrdered(grace=command.drain.grace_seconds))
            case "exit":
                self._handle(lifecycle.ExitOrdered(problem=command.exit.problem))
            case "check":
                self._spawn(self._check(command.check))

    def usage(self) -> pb.ResourceUsage:
        """Return what the container has used lately."""
        usage, gpus = self._usages.latest()
        return pb.ResourceUsage(
            cpu_cores=usage.cpu_cores,
            memory_bytes=usage.memory_bytes,
            gpu_percent=gpus.percent,
            gpu_memory_bytes=gpus.memory_bytes,
        )

    # --- events -----------------------------------------------------------------------------------------------------

    def _order(self, start: pb.Start) -> Launch:
        given = {name: value for name, value in self._environment.items() if name != names.ENV_TOKEN}
        ours = {
            names.ENV_SOCKET: str(self._local.path),
            names.ENV_ROUND: str(start.world.round),
            names.ENV_RANK: str(start.rank),
            names.ENV_WORLD_SIZE: str(len(start.world.members)),
        }
        environment = {**given, **start.environment, **ours}
        return Launch(round=start.world.round, environment=environment, members=start.world.members)

    def _leave(self) -> None:
        self._handle(lifecycle.DrainOrdered(grace=self._config.drain_seconds, by_node=True))

    def _forward(self, number: int) -> None:
        if self._process is not None:
            self._process.signal(number)

    def _handle(self, event: Event) -> None:
        self._state, actions = decide(self._state, event)
        for action in actions:
            self._do(action)

    # --- actions ----------------------------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        match action:
            case Launch():
                self._launch(action)
            case lifecycle.Exited():
                self._master.send(_exited(action))
            case lifecycle.EndProcess():
                if self._ending is not None:
                    self._ending.cancel()
                if self._process is not None:  # else it could not be started, and that is about to be told
                    self._ending = self._spawn(self._end(self._process, action))
            case lifecycle.TellLeaving():
                self._master.send(pb.AgentMessage(leaving=pb.Leaving()))
            case lifecycle.AwaitVerdict():
                self._spawn(self._await_verdict())
            case lifecycle.Quit():
                if not self._quit.done():
                    self._quit.set_result(action.code)

    def _launch(self, order: Launch) -> None:
        self._local.begin(order.round, order.members)
        self._master.send(pb.AgentMessage(started=pb.ProcessStarted(round=order.round)))
        try:
            self._process = self._processes.start(order.environment)
        except CannotStart as failure:
            sys.stderr.write(f"{failure}\n")
            self._spawn(self._give_up(failure))
        else:
            self._spawn(self._see_off(self._process))

    async def _give_up(self, failure: CannotStart) -> None:
        """Make a process that could not be started one that has ended; after what is being decided now."""
        self._handle(lifecycle.ProcessEnded(code=failure.code, message=str(failure)))

    async def _check(self, order: pb.Check) -> None:
        result = await self._node_check.answer(order)
        if result is not None:
            self._master.send(pb.AgentMessage(check=result))

    async def _see_off(self, process: Process) -> None:
        """Wait for the process' end, and make it an event."""
        kills = self._usages.memory_kills()
        code, message = await process.wait()
        if code == 128 + signal.SIGKILL and self._usages.memory_kills() > kills:
            message = f"{message}\nelasticjob-agent: {names.KILLED_FOR_MEMORY}".strip()
        await self._local.settle()
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._process = None
        self._handle(lifecycle.ProcessEnded(code=code, message=message, confirmed=self._local.confirmed))

    async def _end(self, process: Process, order: lifecycle.EndProcess) -> None:
        """Make a process end; cancelled by its end."""
        start = time.monotonic()
        if order.kill_after > 0:
            if self._local.stoppable:
                self._local.stop()
                await asyncio.sleep(order.terminate_after)
            process.terminate()
            await asyncio.sleep(start + order.kill_after - time.monotonic())
        process.kill()

    async def _await_verdict(self) -> None:
        last = self._state.last
        assert last is not None
        if last.code == 0:
            await asyncio.sleep(self._patience.success)
        else:
            while (away := self._master.away_seconds) < self._patience.failure:  # noqa: ASYNC110 (seldom, and long)
                await asyncio.sleep(self._patience.failure - away)
        if self._state.last is last:
            self._handle(lifecycle.NoVerdict())

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._quit.done():
            self._quit.set_exception(error)

    async def _close(self, connection: asyncio.Task[None]) -> None:
        """Say the last words to the master, if it is there, and leave nothing running."""
        self._master.close()
        if self._master.away_seconds == 0.0:
            await asyncio.wait({connection}, timeout=GOODBYE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process is not None:
            self._process.kill()
        self._node_check.end()
        self._readiness.close()
        await self._local.close()
        await self._channel.close()


def _exited(exited: lifecycle.Exited) -> pb.AgentMessage:
    told = pb.ProcessExited(round=exited.round, exit_code=exited.code, asked=exited.asked, message=exited.message)
    return pb.AgentMessage(exited=told)


def run(
    config: Config, command: Sequence[str], environment: Mapping[str, str], patience: Patience | None = None
) -> int:
    """Run an agent until its end; returns the exit code of the container."""

    async def work() -> int:
        return await Agent(config, command, environment, patience or Patience()).run()

    code = asyncio.run(work())
    sys.stderr.flush()
    return code
