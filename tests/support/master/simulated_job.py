"""A whole job in virtual time.

The real controller, state writer and shard service, and the real agents' decisions. The network,
the training processes, the operator and the store are simulated. The master can be killed at any
moment; the next one continues from the state stored by then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from elasticjob_agent import events
from elasticjob_agent.events import Event, Launch
from elasticjob_agent.lifecycle import State, decide
from elasticjob_api.health import Health
from elasticjob_api.limits import MASTER_FENCE_SECONDS
from elasticjob_api.refusals import NotCurrent, NotReadyYet, UnknownName
from elasticjob_api.step_report import StepReport
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_master import control_loop
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.commands import (
    Check,
    CloseStream,
    Command,
    Drain,
    Exit,
    MemberRemoved,
    Start,
    Stop,
)
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    MemberLeaving,
    NodeChecked,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.job_facts import JobFacts, PlanFacts
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.state_writer import NotStored, StateWriter
from elasticjob_master.persistence.store import StoreFailed, TakenOver
from elasticjob_master.persistence.stored_state import decode
from elasticjob_master.server.services.calls import REFUSALS
from elasticjob_master.server.services.shard_service import ShardService

from tests.support.master.census_check import check_census

ROLE = "worker"
DATASET = "data"
SHARDS = 300
GRACE = 6.0
SERVER_TIMEOUT = 9.0
AGENT_TIMEOUT = 15.0
"""Seconds after which each end of a cut connection closes it."""

AgentMessage = Callable[[Controller, Member], None]


@dataclass
class StoredObject:
    """Where the masters of a job store their state, and which of them has claimed it last."""

    data: bytes | None = None
    owner: SimulatedStore | None = None


class SimulatedStore:
    """One master's store, which takes some time.

    The state of a master killed meanwhile may be stored or not.
    Attributes:
        cut: nothing gets through.
    """

    shared = True
    pause = 0.5
    burst = 8.0
    largest: int | None = None

    def __init__(self, rng: random.Random, stored: StoredObject) -> None:
        self._rng = rng
        self._stored = stored
        self.cut = False

    def take(self) -> bytes | None:
        """Claim the state at once."""
        self._stored.owner = self
        return self._stored.data

    async def claim(self) -> bytes | None:
        return self.take()

    async def save(self, data: bytes) -> None:
        await self._reach()
        self._stored.data = data
        await asyncio.sleep(self._rng.uniform(0, 0.1))

    async def is_kept(self) -> bool:
        await self._reach()
        return self._stored.data is not None

    async def _reach(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        if self.cut:
            raise StoreFailed("no answer")
        if self._stored.owner is not self:
            raise TakenOver("another master has claimed the state")


class SimulatedMaster:
    """One master, until it is killed, or until it finds that a later one has claimed the state.

    Attributes:
        superseded_at: when a later master claimed the state.
    """

    def __init__(self, job: SimulatedJob) -> None:
        facts = JobFacts(health=job.health)
        self.controller = Controller(framework=job.framework, facts=facts)
        self.store = SimulatedStore(job.rng, job.stored)
        self.state_writer = StateWriter(
            self.store, lambda: snapshot.encode(self.controller, job_uid="j")
        )
        data = self.store.take()
        if data is not None:
            snapshot.restore(self.controller, decode(data))
        snapshot.connect(self.controller, self.state_writer, self.store)
        self.controller.subscribe("decided", self._check_census)
        self.shards = ShardService(self.controller, self.state_writer)
        self.streams: set[SimulatedStream] = set()
        self.ended = False
        self.superseded_at: float | None = None
        self._work = [job.spawn(control_loop.run(self.controller)), job.spawn(self._write())]

    def _check_census(self) -> None:
        check_census(self.controller.rendezvous, self.controller.now())

    async def _write(self) -> None:
        try:
            await self.state_writer.run()
        except TakenOver:
            self.kill()

    def kill(self) -> None:
        self.ended = True
        for task in self._work:
            task.cancel()
        for stream in list(self.streams):
            stream.broken = True


class SimulatedStream:
    """An ordered stream with delays between an agent and one master, until one end closes it."""

    def __init__(self, agent: SimulatedAgent, master: SimulatedMaster) -> None:
        self.agent = agent
        self.master = master
        self.up: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        self.down: asyncio.Queue[Command | None] = asyncio.Queue()
        self.broken = False
        master.streams.add(self)

    def send(self, command: Command) -> None:
        closes = isinstance(command, MemberRemoved | CloseStream)
        self.down.put_nowait(None if closes else command)

    async def serve(self, running: int, draining: bool) -> None:
        """Be the master's end of the stream."""
        controller = self.master.controller
        uid = self.agent.uid
        event = MemberConnected(uid, running_round=running, draining=draining)
        member = controller.connect(event, self.send)
        assert member is not None, "it has just registered"
        while not self.broken:
            message = await self.take(self.up, SERVER_TIMEOUT)
            if message is None:
                break
            message(controller, member)
        self.broken = True
        self.master.streams.discard(self)
        controller.disconnect(uid, self.send)

    async def take(self, queue: asyncio.Queue[Any], timeout: float) -> Any:
        """Return the next message in one direction; None when this end of the stream has closed."""
        job = self.agent.job
        silent = 0.0
        while not self.broken and silent < timeout:
            if self.agent.cut:
                silent += 0.1
            elif not queue.empty():
                await asyncio.sleep(job.rng.uniform(0, 0.02))
                return queue.get_nowait()
            else:
                silent = 0.0
            await asyncio.sleep(0.1)
        return None


class SimulatedAgent:
    """An agent with the real one's decisions, and its training process."""

    def __init__(self, job: SimulatedJob, index: int, incarnation: int) -> None:
        self.job = job
        self.uid = f"{index}.{incarnation}"
        self.identity = Identity(
            f"j-worker-{self.uid}", self.uid, ROLE, index, incarnation, f"10.0.0.{index}"
        )
        self.state = State()
        self.process: SimulatedProcess | None = None
        self.stream: SimulatedStream | None = None
        self.cut = self.ended = False
        self.disconnected_since = 0.0
        job.spawn(self._reconnect_forever())

    async def _reconnect_forever(self) -> None:
        while not self.ended:
            await asyncio.sleep(self.job.rng.uniform(0.05, 1.0))
            master = self.job.reachable_master()
            if master is None or self.cut or self.ended:
                continue
            try:
                master.controller.register(self.identity)
            except NotCurrent:
                continue
            await self._session(master)

    async def _session(self, master: SimulatedMaster) -> None:
        stream = self.stream = SimulatedStream(self, master)
        running = self.state.running.round if self.state.running else 0
        self.job.spawn(stream.serve(running, self.state.draining))
        if self.state.last_exit is not None:
            self._report_exit(self.state.last_exit)
        beats = self.job.spawn(self._send_heartbeats(stream))
        while (
            not self.ended
            and (command := await stream.take(stream.down, AGENT_TIMEOUT)) is not None
        ):
            if not self.ended:
                self._handle_command(command)
        beats.cancel()
        self.stream = None
        self.disconnected_since = self.job.loop.time()
        stream.up.put_nowait(None)

    async def _send_heartbeats(self, stream: SimulatedStream) -> None:
        while True:
            stream.up.put_nowait(
                lambda controller, member: controller.heartbeat(member.uid, member.usage)
            )
            await asyncio.sleep(2.0)

    def send(self, message: AgentMessage) -> None:
        if self.stream is not None:
            self.stream.up.put_nowait(message)

    def _report_exit(self, last: events.Exited) -> None:
        event = ProcessExited(self.uid, last.round, last.code, last.asked, last.retry)
        self.send(lambda job, member: job.exited(member, event))

    def _handle_command(self, command: Command) -> None:
        match command:
            case Start():
                assert self.stream is not None
                self.job.check_start(command.round, self.stream.master, self)
                self.handle(Launch(command.round))
            case Stop():
                self.handle(events.StopRequested(command.round, command.grace_seconds))
            case Drain():
                self.handle(events.DrainRequested(command.grace_seconds))
            case Exit():
                self.handle(events.ExitRequested(command.problem))
            case Check():
                number = command.number
                self.send(lambda job, member: job.handle(NodeChecked(member.uid, number, 1.0)))

    def handle(self, event: Event) -> None:
        if self.ended:
            return
        self.state, actions = decide(self.state, event)
        for action in actions:
            match action:
                case Launch():
                    self._launch(action.round)
                case events.Exited():
                    self._report_exit(action)
                case events.EndProcess() if self.process is not None:
                    self.process.end(action.kill_after)
                case events.ReportLeaving():
                    self.send(lambda job, member: job.handle(MemberLeaving(member.uid)))
                case events.AwaitVerdict():
                    self.job.spawn(self._await_verdict())
                case events.Quit():
                    self.job.spawn(self._quit(action.code))

    def _launch(self, process_round: int) -> None:
        self.send(lambda job, member: job.handle(ProcessStarted(member.uid, process_round)))
        assert self.process is None, "never two processes on one member"
        self.process = SimulatedProcess(self, process_round)

    async def _await_verdict(self) -> None:
        last = self.state.last_exit
        assert last is not None
        if last.code == 0:
            await asyncio.sleep(10.0)
        else:
            while self.stream is not None or self.job.loop.time() - self.disconnected_since < 60.0:
                await asyncio.sleep(1.0)
        if self.state.last_exit is last:
            self.handle(events.VerdictTimedOut())

    async def _quit(self, code: int) -> None:
        await asyncio.sleep(0.3)  # for its last messages
        self.die(code)

    def die(self, code: int, *, notify: bool = True) -> None:
        """End the agent; without `notify` the master finds out only by its silence."""
        if self.ended:
            return
        self.ended = True
        self.cut = not notify
        if self.stream is not None and notify:
            self.stream.up.put_nowait(None)
        if self.process is not None:
            self.process.die(137, report=False)
        self.job.agent_ended(self, code)


class SimulatedProcess:
    """A training process.

    It steps only together with all others of its world, and trains one shard in each step.
    """

    def __init__(self, agent: SimulatedAgent, process_round: int) -> None:
        self.agent = agent
        self.job = agent.job
        self.round = process_round
        self.stopping = self.hangs = False
        self.step = 0
        self._leased: list[int] = []
        self._task = self.job.spawn(self._train())

    def end(self, kill_after: float) -> None:
        self.stopping = True
        if kill_after == 0:
            self.die(137)
        else:
            self.job.spawn(self._kill(kill_after))

    async def _kill(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.die(137)

    def die(self, code: int, *, report: bool = True) -> None:
        if self.agent.process is self:
            self._task.cancel()
            self.agent.process = None
            if report:
                self.agent.handle(events.ProcessEnded(code=code, message=""))

    async def _train(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self.hangs:
                await asyncio.Event().wait()
            if self.stopping or self.job.finished:
                break
            missing = self.job.missing_peers(self.round)
            if missing == "others":
                if self.job.rng.random() < 0.5:
                    await asyncio.sleep(1.0)
                    self.die(1)
                    return
                await asyncio.Event().wait()
            elif missing == "":
                await self._one_step()
        self.die(0)

    async def _one_step(self) -> None:
        job = self.job
        agent = self.agent
        if not self._leased:
            request = pb.LeaseShardsRequest(
                dataset=DATASET,
                pod_uid=agent.uid,
                count=4,
                request_id=f"{job.rng.random()}",
                round=self.round,
            )
            try:
                answer = await job.call("LeaseShards", request, agent)
            except NotCurrent:  # its world is over, and its agent does not know that yet
                self.die(1)
                return
            self._leased = [shard.id for shard in answer.shards]
            superseded = agent.stream is not None and agent.stream.master is not job.master
            assert superseded or job.done.isdisjoint(self._leased), (
                "a shard confirmed as done is never handed out again"
            )
            job.finished = job.finished or (answer.finished and job.may_finish)
        if self._leased:
            shard = self._leased.pop()
            job.trained.add(shard)
            job.spawn(job.report(shard, agent, self.round))
        self.step += 1
        report = StepReport(self.round, self.step, samples=1, seconds=0.5, steps=1)
        agent.send(lambda controller, member: controller.step(member, report))


class SimulatedJob:
    """The job.

    Its master, if there is one, its agents, and an operator that maintains the desired ones.
    """

    def __init__(self, seed: int, loop: Any, *, framework: str, health: Mapping[str, Any]) -> None:
        self.rng = random.Random(seed)
        self.loop = loop
        self.framework = framework
        self.health = Health(**health)
        self.stored = StoredObject()
        self.master: SimulatedMaster | None = None
        self.earlier_masters: list[SimulatedMaster] = []
        """Masters that were given up and live on."""
        self.desired = {0, 1, 2}
        self.incarnations: dict[int, int] = {}
        self.agents: dict[int, SimulatedAgent] = {}
        self.worlds: dict[int, dict[str, Sequence[str]]] = {}
        self.met: set[int] = set()
        self.trained: set[int] = set()
        self.done: set[int] = set()
        self.finished = self.may_finish = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.fail(error)

    # --- the operator

    def start_master(self) -> None:
        self.master = SimulatedMaster(self)
        self.spawn(self._read_job(self.master))

    def give_up_master(self) -> SimulatedMaster:
        """Start another master while the present one still runs; return the present one."""
        assert self.master is not None
        earlier = self.master
        earlier.superseded_at = self.loop.time()
        self.earlier_masters.append(earlier)
        self.start_master()
        return earlier

    def reachable_master(self) -> SimulatedMaster | None:
        """Return the master that an agent reaches: any, when there is more than one."""
        earlier = [master for master in self.earlier_masters if not master.ended]
        return self.rng.choice([*earlier, self.master]) if earlier else self.master

    async def _read_job(self, master: SimulatedMaster) -> None:
        await asyncio.sleep(self.rng.uniform(0, 2))
        if master is self.master:
            self.update_master()
            request = pb.CreateDatasetRequest(
                dataset=DATASET, size=SHARDS, shard_size=1, epochs=1, shuffle=True
            )
            with suppress(*REFUSALS):
                await master.shards.CreateDataset(request, None)

    def update_master(self) -> None:
        if self.master is not None:
            # Horovod's launcher is somewhere else; without one, the processes would ask the master
            # for their places.
            sizes = {ROLE: RoleSize(1, len(self.desired)), "launcher": RoleSize(0, 0)}
            leaving = {
                a.identity.pod_name: GRACE for i, a in self.agents.items() if i not in self.desired
            }
            self.master.controller.observe_job(
                JobFacts(
                    sizes=sizes,
                    stop_seconds=GRACE,
                    health=self.health,
                    plans=PlanFacts(draining=leaving),
                )
            )

    def scale(self, size: int) -> None:
        self.desired = set(range(size))
        self.update_master()
        for index in self.desired:
            self.add(index)

    def add(self, index: int) -> None:
        if index in self.desired and (index not in self.agents or self.agents[index].ended):
            self.incarnations[index] = self.incarnations.get(index, -1) + 1
            self.agents[index] = SimulatedAgent(self, index, self.incarnations[index])

    def agent_ended(self, agent: SimulatedAgent, code: int) -> None:
        if code == 0:
            self.desired.discard(agent.identity.index)
        else:
            self.spawn(self._replace(agent.identity.index))

    async def _replace(self, index: int) -> None:
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        self.add(index)
        self.update_master()

    # --- requests of the processes

    def check_start(
        self, process_round: int, master: SimulatedMaster, agent: SimulatedAgent
    ) -> None:
        """Check the start of an agent in a world.

        The agent is in it, all agents get the same one, from the right one. What an earlier master
        sends has left it within the fence, and is on its way as long as its stream lives.
        """
        world = master.controller.rendezvous.world
        if master.superseded_at is not None:
            late = self.loop.time() - master.superseded_at
            most = MASTER_FENCE_SECONDS + AGENT_TIMEOUT
            assert late <= most, (
                f"{agent.uid} is started in {process_round} {late:.1f} s after another master began"
            )
        assert agent.uid in world, (
            f"{agent.uid} is started in round {process_round}, which is {world}"
        )
        for other, known in self.worlds.setdefault(process_round, {}).items():
            assert tuple(known) == tuple(world), (
                f"round {process_round}: {other} got {known}, {agent.uid} {world}"
            )
        self.worlds[process_round][agent.uid] = world

    def missing_peers(self, process_round: int) -> str:
        """Return what delays a process' next step.

        "" nothing, "some" peers that start or hang, "others" lost peers.
        """
        world = next(iter(self.worlds[process_round].values()))
        if self.framework == "horovod":
            return ""
        here = [
            a
            for a in self.agents.values()
            if a.process is not None and a.process.round == process_round
        ]
        if {a.uid for a in here}.issuperset(world):
            self.met.add(process_round)
            return "some" if any(a.process is not None and a.process.hangs for a in here) else ""
        return "others" if process_round in self.met else "some"

    async def call(self, method: str, request: Any, agent: SimulatedAgent) -> Any:
        """Call the master as an agent does, until it answers; a refusal is an error of the test."""
        while True:
            master = self.master if agent.stream is None else agent.stream.master
            if master is not None and not master.ended and not agent.cut:
                try:
                    answer = await getattr(master.shards, method)(request, None)
                    if not master.ended and not agent.cut and self.rng.random() > 0.02:
                        return answer
                except (NotReadyYet, NotStored, UnknownName):
                    pass
            await asyncio.sleep(0.5)

    async def report(self, shard: int, agent: SimulatedAgent, process_round: int) -> None:
        request = pb.ReportShardsRequest(
            dataset=DATASET, pod_uid=agent.uid, done=[shard], round=process_round
        )
        answer = await self.call("ReportShards", request, agent)
        if not answer.stale:
            self.done.add(shard)

    # --- faults

    async def kill_master(self, seconds: float) -> None:
        if self.master is not None:
            self.master.kill()
            self.master = None
            await asyncio.sleep(seconds)
            self.start_master()

    async def cut(self, agent: SimulatedAgent, seconds: float) -> None:
        agent.cut = True
        await asyncio.sleep(seconds)
        agent.cut = agent.ended

    def inject_fault(self) -> None:
        """Inject a random fault."""
        alive = [agent for agent in self.agents.values() if not agent.ended]
        agent = self.rng.choice(alive) if alive else None
        fault = self.rng.choice(
            ("master", "master", "cut", "pod", "crash", "hang", "drain", "scale", "node")
        )
        if fault == "master":
            self.spawn(self.kill_master(self.rng.choice((0.0, 0.5, 4.0, 14.0))))
        elif fault == "scale":
            self.scale(self.rng.randint(1, 5))
        elif agent is None:
            return
        elif fault == "cut":
            self.spawn(self.cut(agent, self.rng.choice((1.0, 8.0, 20.0))))
        elif fault in ("pod", "node"):
            agent.die(137, notify=fault == "pod")
        elif fault == "drain":
            agent.handle(events.DrainRequested(grace=GRACE, by_node=True))
        elif agent.process is not None:
            if fault == "crash":
                agent.process.die(self.rng.choice((1, 139)))
            elif (
                self.framework != "horovod"
            ):  # its processes detect by themselves that one of them hangs
                agent.process.hangs = True

    def state(self) -> str:
        """Return a description of the state for a failed assertion."""
        if self.master is None:
            return "no master"
        rendezvous = self.master.controller.rendezvous
        agents = {
            a.uid: (a.process.round if a.process else 0, a.state.last_exit, a.stream is not None)
            for a in self.agents.values()
        }
        members = list(self.master.controller.members)
        ledgers = [
            (ledger.account(), ledger.holders()) for ledger in self.master.controller.ledgers
        ]
        return (
            f"{ledgers}\nphase {rendezvous.phase} round {rendezvous.round} "
            f"world {rendezvous.world}\n"
            f"failed {rendezvous.world_failed} incomplete {rendezvous.world_incomplete} "
            f"agents {agents}\n"
            f"members {members}"
        )
