"""The one owner of the master's state.

The controller applies events in their order, decides, and sends the commands to the agents.
Everything here runs in one event loop without waiting, so no event sees another one half applied.
One decision is made for many events that arrive together. Monitors read the state and return what
they find, and the controller applies it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS, Framework, framework_of
from elasticjob_api.last_words import exit_text
from elasticjob_api.step_report import StepReport
from elasticjob_shards import LeasesOfRound, Ledgers

from elasticjob_master.agent_streams import AgentStreams, Send
from elasticjob_master.core import collectives
from elasticjob_master.core.accounting import Accounting
from elasticjob_master.core.history import PROCESS_RESTARTED, SAMPLE_SECONDS, History, NewEvent
from elasticjob_master.core.progress import Progress
from elasticjob_master.core.rendezvous import events, member_events
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import Command, Exit, MemberRemoved, ReleaseLeases
from elasticjob_master.core.rendezvous.members import Identity, Member, Usage
from elasticjob_master.core.rendezvous.rules import Phase, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.core.report_intervals import Intervals, intervals_for
from elasticjob_master.core.stacks import Collection
from elasticjob_master.core.sync.barrier import Barriers
from elasticjob_master.core.sync.key_value import KeyValueStore
from elasticjob_master.decision_timer import DecisionTimer
from elasticjob_master.job_facts import JobFacts, PlanFacts
from elasticjob_master.monitors import accountant, history_recorder
from elasticjob_master.monitors.health import HealthMonitor
from elasticjob_master.published_hosts import PublishedHosts
from elasticjob_master.scaling_control import ScalingControl
from elasticjob_master.script_order import Scripts
from elasticjob_master.stack_requests import StackRequests, ranks_of

log = logging.getLogger(__name__)

Notice = Literal[
    "changed", "store_needed", "new_round", "plan_wanted", "exit_held", "decided", "stepped"
]
"""The kinds of notices.

"changed": something that must be stored has changed. "store_needed": a world or a host list waits
for a write of the state. "new_round": the values and barriers of the last round are deleted.
"plan_wanted": a ScalePlan is to be created. "exit_held": an agent has to end. "decided": the
controller has made a decision and sent its commands. "stepped": a member has finished a step of
the present world.
"""


class Controller:
    """The state of one job, and the only way to change it.

    Attributes:
        facts: the ElasticJob and its plans, as last observed.
        rendezvous: the members and their world; only `advance` changes it.
        master_starts: the number of masters that this job has had, with this one.
        heartbeats: the number that this master has received.
    """

    def __init__(
        self, *, framework: str, facts: JobFacts | None = None, holds_exits: bool = False
    ) -> None:
        """Begin without members.

        If it `holds_exits`, commands that end agents are held until a caller takes and sends them.
        """
        self._framework_name = framework
        self.facts = facts or JobFacts()
        self.framework = self._framework()
        self.rendezvous = RendezvousState()
        self.members = self.rendezvous.members
        self.progress = Progress()
        self.ledgers = Ledgers()
        self.keyvalue = KeyValueStore()
        self.barriers = Barriers()
        self.history = History()
        self.accounting = Accounting()
        self.health_monitor = HealthMonitor()
        self._sample_due = 0.0
        self.scaling = ScalingControl(changed=self.changed)
        self.scripts = Scripts()
        self._adopt_settings()
        self.streams = AgentStreams(self.intervals)
        self.stacks = StackRequests(self.streams.send, self.now)
        self._holds_exits = holds_exits
        self._held_exits: list[Exit] = []
        # A framework that defines roles trains on the workers only.
        role = names.ROLE_WORKER if self.framework.roles else None
        self.hosts = PublishedHosts(role, self.rendezvous, self.now, on_new=self._publish_hosts)
        self.master_starts = 1
        self.heartbeats = 0
        self._listeners: dict[Notice, list[Callable[[], None]]] = {}
        self.decisions = DecisionTimer(self._decide, self.now)

    def subscribe(self, notice: Notice, listener: Callable[[], None]) -> None:
        """Call a listener at each notice of this kind, after those that subscribed before."""
        self._listeners.setdefault(notice, []).append(listener)

    def _notify(self, notice: Notice) -> None:
        for listener in self._listeners.get(notice, ()):
            listener()

    # --- agents

    def register(self, identity: Identity) -> None:
        """Make a pod a member. Raises `NotCurrent`."""
        self.members.check_registration(identity)
        known = self.members.get(identity.pod_uid) is not None
        self.handle(member_events.MemberRegistered(identity))
        if not known:
            pod = identity.pod_name
            log.info("registered %s at %s", pod, identity.address, extra={"member": pod})
            self.record_event("MemberRegistered", f"{identity.pod_name} at {identity.address}")

    def connect(
        self,
        event: member_events.MemberConnected,
        send: Send,
        leases: Sequence[LeasesOfRound] = (),
        *,
        complete: bool = False,
    ) -> Member | None:
        """Accept a member's stream, in place of an older one. Return None for an unknown pod.

        If the leases are complete, the member holds no others.
        """
        member = self.members.get(event.uid)
        if member is None:
            return None
        awaited = event.uid in self.members.awaited
        self.streams.open(event.uid, send)
        if event.running_round:
            self._check_state(member, max(event.running_round, event.joined_round))
        # The event may end an earlier process of the member, which returns the leases of that one.
        self.handle(event)
        if awaited:
            problems = self.ledgers.resume_leases(event.uid, leases, complete=complete)
            pod = member.identity.pod_name
            for problem in problems:
                log.warning("%s has unknown leases: %s", pod, problem, extra={"member": pod})
            if problems:
                self.record_event(
                    "LeasesUnknown",
                    f"{pod} trains shards that the stored state does not have: {problems[0]}. Its "
                    "reports of them are refused, and its process then fails and is started again",
                )
        return member

    def _check_state(self, member: Member, present: int) -> None:
        """Record that the restored state is older than the world of a member's process."""
        if self.rendezvous.stored_before(present):
            message = (
                f"{member.identity.pod_name} is in round {present}, but the stored state ends "
                f"with round {self.rendezvous.round}: it is older than the job. Shards that were "
                "done in between are trained again, unless the script restores the data set from "
                "its checkpoint"
            )
            log.warning("%s", message, extra={"member": member.identity.pod_name})
            self.record_event("StateOutdated", message)

    def disconnect(self, uid: str, send: Send) -> None:
        """Handle the end of a stream, unless a newer one has replaced it."""
        if self.streams.close(uid, send):
            self.handle(member_events.MemberDisconnected(uid))

    def heartbeat(self, uid: str, usage: Usage, standby: tuple[int, str] = (0, "")) -> None:
        """Handle a heartbeat of a member."""
        self.heartbeats += 1
        self._apply(member_events.HeartbeatReceived(uid, usage, standby))

    def step(self, member: Member, report: StepReport) -> None:
        """Handle a report of a member's training steps."""
        present = self.rendezvous.round
        problem = report.validation_error()
        if problem is None and report.round > present:
            problem = f"round is {report.round}; it must be at most {present}, the present one"
        if problem is not None:
            pod = member.identity.pod_name
            log.warning("%s: step report ignored: %s", pod, problem, extra={"member": pod})
            return
        if self.framework.in_process_elastic:
            # Its process continues from world to world and reports the round of its start.
            report = replace(report, round=present)
        wall = time.time()
        stepped = self.progress.add_report(member.uid, report, now=self.now(), wall=wall)
        self._apply(member_events.StepsReported(member.uid, report))
        if stepped and report.round == present:
            event = self.health_monitor.step_finished(report, process_round=present, wall=wall)
            self._record(event)
            self._notify("stepped")

    def exited(self, member: Member, event: member_events.ProcessExited) -> None:
        """Handle the end of a member's training process."""
        crashed = event.exit_code and not event.requested
        if crashed and member.process_round == event.round:
            pod = member.identity.pod_name
            world = self.rendezvous.world
            rank = f" (rank {world.index(member.uid)})" if member.uid in world else ""
            message = f"{pod}{rank} in round {event.round}: {exit_text(event.exit_code)}"
            self.record_event("ProcessFailed", message)
        self.handle(event)

    def restarted(self, member: Member, restarts: int, exit_code: int, message: str) -> None:
        """Handle that a member's agent restarts a crashed process in its pod."""
        self._apply(member_events.ProcessRestarted(member.uid, restarts))
        text = f"{member.identity.pod_name}: restart {restarts}, after {exit_text(exit_code)}"
        self.record_event(PROCESS_RESTARTED, f"{text}: {message}" if message else text)

    def handle(self, event: events.Event) -> None:
        """Apply an event, and decide soon."""
        self._apply(event)
        self._decide_soon()

    def suspended(self, seconds: float) -> None:
        """Handle that this master did not run for so long: neither silence nor a rate counts."""
        self.scaling.autoscaler.world_changed()
        self.handle(events.MasterStalled(seconds))

    # --- the job

    def observe_job(self, facts: JobFacts) -> None:
        """Adopt the present ElasticJob and its plans."""
        self.facts = facts
        self.framework = self._framework()
        self._adopt_settings()
        if facts.plans is not None:
            self._observe_plans(facts.plans)
        self._decide_soon()

    def _observe_plans(self, observed: PlanFacts) -> None:
        if observed.successors != self.rendezvous.successors:
            places = ", ".join(f"{role} {index}" for role, index in sorted(observed.successors))
            log.info("successors: %s", places or "no member")
        self._apply(events.SuccessorsChanged(observed.successors))
        self._apply(events.DrainOrdered(observed.draining))
        self.scripts.set(observed.script)
        for plan in self.scaling.observe(self, observed):
            self._record(history_recorder.plan_changed(self.history, plan))

    def _framework(self) -> Framework:
        sizes = self.facts.sizes
        name = self._framework_name
        framework = FRAMEWORKS[name] if sizes is None else framework_of(name, sizes)
        return replace(framework, own_port=self.facts.own_port)

    def _adopt_settings(self) -> None:
        facts = self.facts
        framework = self.framework
        rules = Rules(
            in_process_elastic=framework.in_process_elastic,
            elastic_driver=framework.elastic_driver,
            deciding_role=framework.deciding_role,
            stop_order=framework.stop_order,
            all_ready=facts.all_ready,
        )
        timing = Timing(stop=facts.stop_seconds, lost=float(facts.health.lost_seconds))
        node_check = facts.health.node_check
        self._apply(events.SettingsObserved(facts.sizes, rules, timing, facts.domains, node_check))

    def record_event(self, reason: str, message: str) -> None:
        """Record an event in the history. docs/queries.md lists the reasons."""
        self.history.add_event(reason, message, time.time())
        self.changed()

    def expected_members(self) -> int:
        """Return the number of members, or the desired number if that is larger."""
        desired = sum(size.desired for size in (self.facts.sizes or {}).values())
        return max(len(self.members), desired)

    @property
    def phase(self) -> Phase:
        """The phase that users are shown."""
        over = self.rendezvous.finished_at is not None and self.rendezvous.phase == "waiting"
        return "finishing" if over else self.rendezvous.phase

    @property
    def intervals(self) -> Intervals:
        """How often the agents send heartbeats and step reports."""
        return intervals_for(len(self.members), lost=self.rendezvous.timing.lost)

    def changed(self) -> None:
        """Notify listeners that something that must be stored has changed."""
        self._notify("changed")

    def stored(self, process_round: int, host_version: int, began_at: float) -> None:
        """Handle a write of the state that has succeeded.

        It contains the world of this round and this version of the host list.
        """
        self._apply(events.StateStored(process_round, began_at))
        self.hosts.publish_latest(stored_version=host_version)
        self.decisions.request()

    def restore(self, event: events.StateRestored, earlier_starts: int) -> None:
        """Continue after the earlier master of this number."""
        self._apply(event)
        self.master_starts = earlier_starts + 1
        self.ledgers.may_lag_behind = True

    def now(self) -> float:
        """Return the clock of all decisions."""
        return time.monotonic()

    def tick_monitors(self, now: float) -> None:
        """Let the monitors read the state, and apply their findings."""
        wall = time.time()
        script = self.scripts.due(self.members, now, wall)
        if script is not None:
            self.streams.send(script)
        self._record(self.scaling.tick(self, now))
        if self.scaling.wish is not None:
            self._notify("plan_wanted")
        health = self.health_monitor.tick(self, now, wall=wall)
        for event in health.events:
            self._record(event)
        if health.restart:
            self._apply(events.TrainingHung())
        self._explain_stall(wanted=health.stacks)
        if now >= self._sample_due and self.rendezvous.round:
            self._sample_due = now + SAMPLE_SECONDS
            self._add_sample(now, wall)
        moment = accountant.moment(self, stalled_since=self.health_monitor.stalled_since)
        self.accounting.advance(now, wall, moment, lambda: accountant.held(self))

    async def collect_stacks(self, ranks: Sequence[int]) -> Collection:
        """Return the stacks of the members with these ranks, or of all. Raises `LimitReached`."""
        members = ranks_of([*self.rendezvous.world_members()], self.framework, ranks)
        stalled = self.health_monitor.stalled_since is not None
        return await self.stacks.collected(self.rendezvous.round, members, stalled=stalled)

    def _explain_stall(self, *, wanted: bool) -> None:
        """Ask all members for their stacks, or give the answers to the monitor of the health."""
        if wanted:
            members = ranks_of([*self.rendezvous.world_members()], self.framework)
            self.stacks.begin(self.rendezvous.round, members, stalled=True)
        answers = self.stacks.tick()
        if answers is not None and answers.ranks.keys() >= {*self.rendezvous.world}:
            why = collectives.summary(answers.groups())
            self._record(self.health_monitor.explain_stall(why, process_round=answers.round))

    def record_end(self) -> None:
        """Record the progress at the end of this master, which may be the end of the training."""
        if self.rendezvous.round:
            self._add_sample(self.now(), time.time())
            self.changed()

    def _add_sample(self, now: float, wall: float) -> None:
        if self.progress.unmeasured:
            return
        new = history_recorder.sample(self, now, wall)
        self.history.add_sample(new, self.progress.metrics, self.accounting.spent())

    # --- decisions

    def _apply(self, event: events.Event) -> None:
        """Apply an event, and execute the commands that follow at once."""
        self._execute(advance(self.rendezvous, self.now(), event))

    def _decide_soon(self) -> None:
        self.decisions.request()
        self.changed()

    def _decide(self) -> None:
        state = self.rendezvous
        before = (state.phase, state.round)
        commands = advance(state, self.now())
        after = (state.phase, state.round)
        if before != after:
            size = len(state.world)
            log.info("round %d, %s: %d members in the world", state.round, state.phase, size)
            self.scaling.autoscaler.world_changed()
            self.changed()
        if state.round > before[1]:
            self._record(history_recorder.world_formed(self))
        if self.keyvalue.round != state.round:
            self.keyvalue.begin_round(state.round)
            self.barriers.begin_round()
            self._notify("new_round")
        self._execute(commands)
        if state.commands_left:
            asyncio.get_running_loop().call_soon(self.decisions.decide_now)
        # If the agents restart the training, no process reads the list while a world forms.
        self.hosts.update(settled=state.world_settled or not self.framework.in_process_elastic)
        if state.store_needed:
            self._notify("store_needed")
        self.streams.send_intervals(self.intervals)
        self._notify("decided")

    def _execute(self, commands: Sequence[Command]) -> None:
        """Execute commands of the rendezvous, most of them by sending them to the agents."""
        if not commands:
            return
        self.scaling.autoscaler.world_changed()
        self.changed()
        for event in history_recorder.events_of(self, commands, self.now()):
            self._record(event)
        for command in commands:
            if isinstance(command, ReleaseLeases):
                self.ledgers.release(command.uid)
                self.progress.remove_member(command.uid)
                continue
            if isinstance(command, MemberRemoved):
                log.info("pod %s is no longer a member", command.uid)
            if isinstance(command, Exit) and self._holds_exits:
                self._held_exits.append(command)
                self._notify("exit_held")
            else:
                self.streams.send(command)

    def held_exits(self) -> list[Exit]:
        """Return the held commands that end agents. The caller sends them."""
        held = self._held_exits
        self._held_exits = []
        return held

    def _record(self, event: NewEvent | None) -> None:
        if event is not None:
            self.record_event(*event)

    def _publish_hosts(self) -> None:
        """Publish a new host list, but a shared state must be stored before."""
        self.changed()
        if self.rendezvous.shared_state:
            self._notify("store_needed")
        else:
            self.hosts.publish_latest(stored_version=self.hosts.latest.version)
