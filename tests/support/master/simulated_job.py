"""A whole job in virtual time: the master's own controller, state writer and shard service; agents that decide as real
ones.

Played are the network, the processes, the operator and the store. The master can be killed at any moment and goes on
from what was stored by then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc
from elasticjob_agent import lifecycle
from elasticjob_agent.lifecycle import Event, Launch, State, decide
from elasticjob_api.health import Health
from elasticjob_api.refusals import NotCurrent
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_master.controller import Controller
from elasticjob_master.core.progress import Report
from elasticjob_master.core.rendezvous.commands import Check, Command, Drain, Exit, MemberRemoved, Start, Stop
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.stored_state import decode
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server.services.shards import ShardService

ROLE = "worker"
DATASET = "data"
SHARDS = 300
GRACE = 6.0
SERVER_NOTICES, AGENT_NOTICES = 9.0, 15.0
"""Seconds after which either end of a cut connection gives it up."""

Word = Callable[[Controller, Member], None]


class Aborted(Exception):
    """How a call has ended."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code


class Context:
    """Of a call to a service of the master."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


class Memory:
    """A store that takes a moment; what is killed in that moment may be stored or not."""

    pause = 0.5
    burst = 8.0
    largest: int | None = None

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.data: bytes | None = None

    async def load(self) -> bytes | None:
        return self.data

    async def save(self, data: bytes) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        self.data = data
        await asyncio.sleep(self._rng.uniform(0, 0.1))


class Master:
    """One life of the master."""

    def __init__(self, job: SoakedJob) -> None:
        self.controller = Controller(framework=job.framework)
        self.controller.set_health(job.health)
        self.state_writer = StateWriter(job.store, lambda: snapshot.encode(self.controller, job_uid="j"))
        if job.store.data is not None:
            snapshot.restore(self.controller, decode(job.store.data))
        self.controller.on_change = self.state_writer.changed
        self.shards = ShardService(self.controller, self.state_writer)
        self.links: set[Link] = set()
        self._work = [job.spawn(self.controller.run()), job.spawn(self.state_writer.run())]

    def kill(self) -> None:
        for task in self._work:
            task.cancel()
        for link in list(self.links):
            link.broken = True


class Link:
    """A stream between an agent and one life of the master, in order and with delays, until one end gives it up."""

    def __init__(self, agent: Agent, master: Master) -> None:
        self.agent, self.master = agent, master
        self.up: asyncio.Queue[Word | None] = asyncio.Queue()
        self.down: asyncio.Queue[Command | None] = asyncio.Queue()
        self.broken = False
        master.links.add(self)

    def send(self, command: Command) -> None:
        self.down.put_nowait(None if isinstance(command, MemberRemoved) else command)

    async def serve(self, running: int, draining: bool) -> None:
        """Be the master's end of the stream."""
        controller, uid = self.master.controller, self.agent.uid
        member = controller.connect(uid, self.send, running_round=running, draining=draining)
        assert member is not None, "it has just registered"
        while not self.broken:
            word = await self.take(self.up, SERVER_NOTICES)
            if word is None:
                break
            word(controller, member)
        self.broken = True
        self.master.links.discard(self)
        controller.disconnect(uid, self.send)

    async def take(self, queue: asyncio.Queue[Any], patience: float) -> Any:
        """Return what comes next on a way; None when this end of the stream is over."""
        job, silent = self.agent.job, 0.0
        while not self.broken and silent < patience:
            if self.agent.cut:
                silent += 0.1
            elif not queue.empty():
                await asyncio.sleep(job.rng.uniform(0, 0.02))
                return queue.get_nowait()
            else:
                silent = 0.0
            await asyncio.sleep(0.1)
        return None


class Agent:
    """An agent with the real one's decisions, and the process it runs."""

    def __init__(self, job: SoakedJob, index: int, incarnation: int) -> None:
        self.job = job
        self.uid = f"{index}.{incarnation}"
        self.identity = Identity(f"j-worker-{self.uid}", self.uid, ROLE, index, incarnation, f"10.0.0.{index}")
        self.state = State()
        self.process: Process | None = None
        self.link: Link | None = None
        self.cut = self.gone = False
        self.disconnected_since = 0.0
        job.spawn(self._live())

    async def _live(self) -> None:
        while not self.gone:
            await asyncio.sleep(self.job.rng.uniform(0.05, 1.0))
            master = self.job.master
            if master is None or self.cut or self.gone:
                continue
            try:
                master.controller.register(self.identity)
            except NotCurrent:
                continue
            await self._session(master)

    async def _session(self, master: Master) -> None:
        link = self.link = Link(self, master)
        running = self.state.running.round if self.state.running else 0
        self.job.spawn(link.serve(running, self.state.draining))
        if self.state.last_exit is not None:
            self._tell_exit(self.state.last_exit)
        beats = self.job.spawn(self._beat(link))
        while not self.gone and (command := await link.take(link.down, AGENT_NOTICES)) is not None:
            if not self.gone:
                self._obey(command)
        beats.cancel()
        self.link, self.disconnected_since = None, self.job.loop.time()
        link.up.put_nowait(None)

    async def _beat(self, link: Link) -> None:
        while True:
            link.up.put_nowait(lambda controller, member: controller.heartbeat(member, member.usage))
            await asyncio.sleep(2.0)

    def tell(self, word: Word) -> None:
        if self.link is not None:
            self.link.up.put_nowait(word)

    def _tell_exit(self, last: lifecycle.Exited) -> None:
        self.tell(lambda job, member: job.exited(member, last.round, last.code, asked=last.asked))

    def _obey(self, command: Command) -> None:
        match command:
            case Start():
                assert self.link is not None
                self.job.began(command.round, self.link.master.controller.rendezvous.world, self)
                self.handle(Launch(command.round))
            case Stop():
                self.handle(lifecycle.StopRequested(command.round, command.grace_seconds))
            case Drain():
                self.handle(lifecycle.DrainRequested(command.grace_seconds))
            case Exit():
                self.handle(lifecycle.ExitRequested(command.problem))
            case Check():
                number = command.number
                self.tell(lambda job, member: job.checked(member, number, 1.0, "", ()))

    def handle(self, event: Event) -> None:
        if self.gone:
            return
        self.state, actions = decide(self.state, event)
        for action in actions:
            match action:
                case Launch():
                    self._launch(action.round)
                case lifecycle.Exited():
                    self._tell_exit(action)
                case lifecycle.EndProcess() if self.process is not None:
                    self.process.end(action.kill_after)
                case lifecycle.ReportLeaving():
                    self.tell(lambda job, member: job.leaving(member))
                case lifecycle.AwaitVerdict():
                    self.job.spawn(self._await_verdict())
                case lifecycle.Quit():
                    self.job.spawn(self._quit(action.code))

    def _launch(self, process_round: int) -> None:
        self.tell(lambda job, member: job.started(member, process_round))
        assert self.process is None, "never two processes on one member"
        self.process = Process(self, process_round)

    async def _await_verdict(self) -> None:
        last = self.state.last_exit
        assert last is not None
        if last.code == 0:
            await asyncio.sleep(10.0)
        else:
            while self.link is not None or self.job.loop.time() - self.disconnected_since < 60.0:
                await asyncio.sleep(1.0)
        if self.state.last_exit is last:
            self.handle(lifecycle.VerdictTimedOut())

    async def _quit(self, code: int) -> None:
        await asyncio.sleep(0.3)  # the last words
        self.die(code)

    def die(self, code: int, *, heard: bool = True) -> None:
        """End; without being `heard` the connection is found dead only by its silence."""
        if self.gone:
            return
        self.gone, self.cut = True, not heard
        if self.link is not None and heard:
            self.link.up.put_nowait(None)
        if self.process is not None:
            self.process.die(137, told=False)
        self.job.ended(self, code)


class Process:
    """A training process: steps only together with all others of its world, and trains a shard a step."""

    def __init__(self, agent: Agent, process_round: int) -> None:
        self.agent, self.job, self.round = agent, agent.job, process_round
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

    def die(self, code: int, *, told: bool = True) -> None:
        if self.agent.process is self:
            self._task.cancel()
            self.agent.process = None
            if told:
                self.agent.handle(lifecycle.ProcessEnded(code=code, message=""))

    async def _train(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self.hangs:
                await asyncio.Event().wait()
            if self.stopping or self.job.finished:
                break
            missing = self.job.missing(self.round)
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
        job, agent = self.job, self.agent
        if not self._leased:
            request = pb.LeaseShardsRequest(
                dataset=DATASET, pod_uid=agent.uid, count=4, request_id=f"{job.rng.random()}", round=self.round
            )
            answer = await job.call("LeaseShards", request, agent)
            self._leased = [shard.id for shard in answer.shards]
            assert job.done.isdisjoint(self._leased), "what was told to be done is handed out to nobody"
            job.finished = job.finished or (answer.finished and job.may_finish)
        if self._leased:
            shard = self._leased.pop()
            job.trained.add(shard)
            job.spawn(job.report(shard, agent, self.round))
        self.step += 1
        report = Report(self.round, self.step, samples=1, seconds=0.5, steps=1)
        agent.tell(lambda controller, member: controller.step(member, report))


class SoakedJob:
    """The job: its master, if it lives, its agents, and the operator who keeps the desired ones there."""

    def __init__(self, seed: int, loop: Any, *, framework: str, health: Mapping[str, Any]) -> None:
        self.rng, self.loop, self.framework = random.Random(seed), loop, framework
        self.health = Health(**health)
        self.store = Memory(self.rng)
        self.master: Master | None = None
        self.desired = {0, 1, 2}
        self.incarnations: dict[int, int] = {}
        self.agents: dict[int, Agent] = {}
        self.worlds: dict[int, dict[str, Sequence[str]]] = {}
        self.met: set[int] = set()
        self.trained: set[int] = set()
        self.done: set[int] = set()
        self.finished = self.may_finish = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._look)
        return task

    def _look(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.fail(error)

    # --- the operator ------------------------------------------------------------------------------------------------

    def start_master(self) -> None:
        self.master = Master(self)
        self.spawn(self._read_job(self.master))

    async def _read_job(self, master: Master) -> None:
        await asyncio.sleep(self.rng.uniform(0, 2))
        if master is self.master:
            self.tell_master()
            request = pb.CreateDatasetRequest(dataset=DATASET, size=SHARDS, shard_size=1, epochs=1, shuffle=True)
            with suppress(Aborted):
                await master.shards.CreateDataset(request, Context())

    def tell_master(self) -> None:
        if self.master is not None:
            sizes = {ROLE: RoleSize(1, len(self.desired))}
            self.master.controller.resize(sizes, all_ready=False, stop_seconds=GRACE)
            leaving = {a.identity.pod_name: GRACE for i, a in self.agents.items() if i not in self.desired}
            self.master.controller.drain(leaving)

    def scale(self, size: int) -> None:
        self.desired = set(range(size))
        self.tell_master()
        for index in self.desired:
            self.add(index)

    def add(self, index: int) -> None:
        if index in self.desired and (index not in self.agents or self.agents[index].gone):
            self.incarnations[index] = self.incarnations.get(index, -1) + 1
            self.agents[index] = Agent(self, index, self.incarnations[index])

    def ended(self, agent: Agent, code: int) -> None:
        if code == 0:
            self.desired.discard(agent.identity.index)
        else:
            self.spawn(self._replace(agent.identity.index))

    async def _replace(self, index: int) -> None:
        await asyncio.sleep(self.rng.uniform(0.5, 3))
        self.add(index)
        self.tell_master()

    # --- what the processes ask --------------------------------------------------------------------------------------

    def began(self, process_round: int, world: Sequence[str], agent: Agent) -> None:
        """An agent is told to start in a world: it is in it, and all are told the same."""
        assert agent.uid in world, f"{agent.uid} is started in round {process_round}, which is {world}"
        for other, told in self.worlds.setdefault(process_round, {}).items():
            assert tuple(told) == tuple(world), f"round {process_round}: {other} was told {told}, {agent.uid} {world}"
        self.worlds[process_round][agent.uid] = world

    def missing(self, process_round: int) -> str:
        """Tell who keeps a round's process from its next step: "" nobody, "some" that come or hang, "others" gone."""
        world = next(iter(self.worlds[process_round].values()))
        if self.framework == "horovod":
            return ""
        here = [a for a in self.agents.values() if a.process is not None and a.process.round == process_round]
        if {a.uid for a in here}.issuperset(world):
            self.met.add(process_round)
            return "some" if any(a.process is not None and a.process.hangs for a in here) else ""
        return "others" if process_round in self.met else "some"

    async def call(self, method: str, request: Any, agent: Agent) -> Any:
        """Call the master as an agent does, until it answers; a refusal is an error of the test."""
        while True:
            master = self.master
            if master is not None and not agent.cut:
                try:
                    answer = await getattr(master.shards, method)(request, Context())
                    if master is self.master and not agent.cut and self.rng.random() > 0.02:
                        return answer
                except Aborted as error:
                    if error.code is not grpc.StatusCode.UNAVAILABLE and error.code is not grpc.StatusCode.NOT_FOUND:
                        raise
            await asyncio.sleep(0.5)

    async def report(self, shard: int, agent: Agent, process_round: int) -> None:
        request = pb.ReportShardsRequest(dataset=DATASET, pod_uid=agent.uid, done=[shard], round=process_round)
        answer = await self.call("ReportShards", request, agent)
        if not answer.stale:
            self.done.add(shard)

    # --- what befalls it ---------------------------------------------------------------------------------------------

    async def kill_master(self, seconds: float) -> None:
        if self.master is not None:
            self.master.kill()
            self.master = None
            await asyncio.sleep(seconds)
            self.start_master()

    async def cut(self, agent: Agent, seconds: float) -> None:
        agent.cut = True
        await asyncio.sleep(seconds)
        agent.cut = agent.gone

    def befall(self) -> None:
        """Let something happen."""
        alive = [agent for agent in self.agents.values() if not agent.gone]
        agent = self.rng.choice(alive) if alive else None
        what = self.rng.choice(("master", "master", "cut", "pod", "crash", "hang", "drain", "scale", "node"))
        if what == "master":
            self.spawn(self.kill_master(self.rng.choice((0.0, 0.5, 4.0, 14.0))))
        elif what == "scale":
            self.scale(self.rng.randint(1, 5))
        elif agent is None:
            return
        elif what == "cut":
            self.spawn(self.cut(agent, self.rng.choice((1.0, 8.0, 20.0))))
        elif what in ("pod", "node"):
            agent.die(137, heard=what == "pod")
        elif what == "drain":
            agent.handle(lifecycle.DrainRequested(grace=GRACE, by_node=True))
        elif agent.process is not None:
            if what == "crash":
                agent.process.die(self.rng.choice((1, 139)))
            elif self.framework != "horovod":  # whose processes find out by themselves that one of them hangs
                agent.process.hangs = True

    def state(self) -> str:
        """Return how it stands, for people."""
        if self.master is None:
            return "no master"
        rendezvous = self.master.controller.rendezvous
        agents = {
            a.uid: (a.process.round if a.process else 0, a.state.last_exit, a.link is not None)
            for a in self.agents.values()
        }
        members = list(self.master.controller.members)
        ledgers = [(ledger.account(), ledger.holders()) for ledger in self.master.controller.ledgers]
        return (
            f"{ledgers}\nphase {rendezvous.phase} round {rendezvous.round} world {rendezvous.world}\n"
            f"failed {rendezvous.world_failed} incomplete {rendezvous.world_incomplete} agents {agents}\n"
            f"members {members}"
        )
