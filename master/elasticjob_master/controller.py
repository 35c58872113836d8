"""The one owner of the master's state: applies events in order, decides, and hands commands to the agents' streams.

Everything here runs in one event loop without waiting, so no event ever sees another half applied. Decisions for many
events that arrive together are made once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.health import Health
from elasticjob_shards import Ledgers

from elasticjob_master.agent_streams import AgentStreams, Send
from elasticjob_master.broadcast import Broadcast
from elasticjob_master.core.history import History
from elasticjob_master.core.plan_summary import PlanSummary
from elasticjob_master.core.progress import Progress, Report
from elasticjob_master.core.rendezvous import host_discovery, node_check
from elasticjob_master.core.rendezvous.commands import Command, MemberRemoved, ReleaseLeases
from elasticjob_master.core.rendezvous.host_discovery import HostList
from elasticjob_master.core.rendezvous.members import Identity, Member, Members, Usage
from elasticjob_master.core.rendezvous.rendezvous import Rendezvous
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize, Rules, Timing
from elasticjob_master.core.report_intervals import Intervals, intervals_for
from elasticjob_master.core.stall import StallDetector
from elasticjob_master.core.sync.barrier import Barriers
from elasticjob_master.core.sync.key_value import KeyValueStore
from elasticjob_master.monitors.autoscaler import AutoScaler
from elasticjob_master.monitors.health import HealthMonitor
from elasticjob_master.monitors.history_recorder import HistoryRecorder

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
_TOGETHER_SECONDS = 0.005
_SHARE_OF_DECISIONS = 0.1
"""Of the time, at most: a decision looks at every member, and with thousands of them comes less often."""
_LONGEST_PAUSE_SECONDS = 0.5
_STOOD_STILL_SECONDS = 2.0
_STORE_SECONDS = 5.0
"""How old the stored progress may be; everything else is stored when it changes."""


class Controller:
    """The state of one job, and what may be done to it."""

    def __init__(
        self, *, framework: str, sizes: Mapping[str, RoleSize] | None = None, timing: Timing | None = None
    ) -> None:
        self.framework = FRAMEWORKS[framework]
        rules = Rules(in_process_elastic=self.framework.in_process_elastic, deciding_role=self.framework.deciding_role)
        self.members = Members()
        self.rendezvous = Rendezvous(self.members, rules=rules, timing=timing)
        self.rendezvous.sizes = sizes
        self.progress = Progress()
        self.ledgers = Ledgers()
        self.keyvalue = KeyValueStore()
        self.barriers = Barriers()
        self.history = History()
        self.plans: Sequence[PlanSummary] = ()
        self.health = Health()
        self.stall = StallDetector()
        self.stragglers: tuple[str, ...] = ()
        self.health_monitor = HealthMonitor(self)
        self.history_recorder = HistoryRecorder(self)
        self.autoscaler = AutoScaler(self)
        self.streams = AgentStreams(self.intervals)
        self.hosts: Broadcast[HostList] = Broadcast(HostList())
        self.master_starts = 1
        self.heartbeats = 0
        self.on_change: Callable[[], None] = lambda: None
        self.on_round: Callable[[], None] = lambda: None
        self._due = False
        self._advanced_at = 0.0
        self._decided_in = 0.0

    # --- agents ------------------------------------------------------------------------------------------------------

    def register(self, identity: Identity) -> None:
        """Make a pod a member. Raises `NotCurrent`."""
        known = self.members.get(identity.pod_uid) is not None
        self.rendezvous.register(identity, self.now())
        if not known:
            log.info("registered %s at %s", identity.pod_name, identity.address)
            self.record_event("MemberRegistered", f"{identity.pod_name} at {identity.address}")
        self._decide_soon()

    def connect(self, uid: str, send: Send, *, running_round: int, draining: bool) -> Member | None:
        """Take a stream of a member, in place of an older one. None: nobody has registered this pod."""
        member = self.members.get(uid)
        if member is None:
            return None
        self.streams.open(uid, send)
        self.rendezvous.connected(uid, self.now(), running_round=running_round, draining=draining)
        self._decide_soon()
        return member

    def disconnect(self, uid: str, send: Send) -> None:
        """A stream has ended; nothing happens when a newer one has replaced it."""
        if self.streams.close(uid, send):
            self.rendezvous.disconnected(uid, self.now())
            self._decide_soon()

    def heartbeat(self, member: Member, usage: Usage) -> None:
        """A member lives."""
        self.heartbeats += 1
        member.last_heard_at = self.now()
        member.usage = usage

    def step(self, member: Member, report: Report) -> None:
        """A member has trained."""
        problem = report.validation_error()
        if problem is None and report.round > self.rendezvous.round:
            problem = f"round is {report.round}; it must be at most {self.rendezvous.round}, the present one"
        if problem is not None:
            log.warning("%s: step report ignored: %s", member.identity.pod_name, problem)
            return
        member.last_heard_at = now = self.now()
        if self.framework.in_process_elastic:
            report = replace(report, round=self.rendezvous.round)  # its process goes on from world to world
        wall = time.time()
        stepped = self.progress.add_report(member.uid, report, now=now, wall=wall)
        self.health_monitor.reported(member, report, now=now, wall=wall, stepped=stepped)
        member.step = report.step

    def started(self, member: Member, process_round: int) -> None:
        """A training process runs."""
        member.last_heard_at = self.now()
        self.rendezvous.process_started(member.uid, process_round)
        self._decide_soon()

    def exited(self, member: Member, process_round: int, exit_code: int, *, asked: bool) -> None:
        """A training process has ended."""
        member.last_heard_at = now = self.now()
        if exit_code and not asked and member.process_round == process_round:
            self.record_event(
                "ProcessFailed", f"{member.identity.pod_name} in round {process_round}: exit code {exit_code}"
            )
        self.rendezvous.process_exited(member.uid, process_round, exit_code, now, requested=asked)
        self._decide_soon()

    def leaving(self, member: Member) -> None:
        """A member's node ends it."""
        log.info("%s is told by its node to end", member.identity.pod_name)
        self.rendezvous.member_leaving(member.uid, self.now())
        self._decide_soon()

    def checked(self, member: Member, number: int, seconds: float, problem: str, unreached: Sequence[str]) -> None:
        """A member has measured its node."""
        member.last_heard_at = self.now()
        node_check.record_answer(member, number, seconds=seconds, problem=problem, unreached=unreached)
        self._decide_soon()

    # --- the job -----------------------------------------------------------------------------------------------------

    def drain(self, pods: Mapping[str, float]) -> None:
        """These pods, and no others, shall leave by order of the operator."""
        self.rendezvous.set_draining(pods, self.now())
        self._decide_soon()

    def stand_by(self, places: frozenset[tuple[str, int]]) -> None:
        """The members of these roles and indices, and no others, wait for the ones they replace."""
        if self.rendezvous.set_standby(places):
            log.info("standing by: %s", ", ".join(f"{role} {index}" for role, index in sorted(places)) or "nobody")
            self._decide_soon()

    def resize(self, sizes: Mapping[str, RoleSize], *, all_ready: bool, stop_seconds: float) -> None:
        """The job's spec or size, as the operator holds it, has changed."""
        rendezvous = self.rendezvous
        rendezvous.sizes = sizes
        rendezvous.rules = replace(rendezvous.rules, all_ready=all_ready)
        rendezvous.timing = replace(rendezvous.timing, stop=stop_seconds)
        self._decide_soon()

    def set_health(self, health: Health) -> None:
        """What the job takes for healthy is known, or has changed."""
        if health != self.health:
            self.health = health
            self.rendezvous.timing = replace(self.rendezvous.timing, lost=float(health.lost_seconds))
            self.rendezvous.node_check = health.node_check
            self._decide_soon()

    def record_event(self, reason: str, message: str) -> None:
        """Something has happened that people may ask about later."""
        self.history.add_event(reason, message, time.time())
        self.changed()

    def unfit_pods(self) -> dict[str, str]:
        """Return the pods whose nodes are not fit, and what is wrong there."""
        return dict(self.rendezvous.unfit.values())

    @property
    def phase(self) -> Phase:
        """What the job is doing, as people are told."""
        over = self.rendezvous.finished_at is not None and self.rendezvous.phase == "waiting"
        return "finishing" if over else self.rendezvous.phase

    def changed(self) -> None:
        """Something that must be stored has changed."""
        self.on_change()

    @property
    def intervals(self) -> Intervals:
        """How often the agents tell."""
        return intervals_for(len(self.members), lost=self.rendezvous.timing.lost)

    def now(self) -> float:
        """Return the clock of all decisions."""
        return time.monotonic()

    async def run(self) -> None:
        """Let time pass."""
        last = stored_at = self.now()
        stored = self.progress.reported_at
        while True:
            await asyncio.sleep(self._pause(TICK_SECONDS))
            now = self.now()
            if now - last > _STOOD_STILL_SECONDS:
                log.warning("stood still for %.1f s; silence in that time is nobody's fault", now - last)
                self.rendezvous.extend_deadlines(now - last)
                await asyncio.sleep(0)  # what arrived meanwhile comes first
            last = now
            self._advance()
            self.autoscaler.tick(now)
            self.health_monitor.tick(now)
            self.history_recorder.tick(now)
            if self.progress.reported_at != stored and now - stored_at >= _STORE_SECONDS:
                stored, stored_at = self.progress.reported_at, now
                self.changed()

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _decide_soon(self) -> None:
        if not self._due:
            self._due = True
            since = self.now() - self._advanced_at
            delay = max(0.0, self._pause(_TOGETHER_SECONDS) - since)
            asyncio.get_running_loop().call_later(delay, self._advance_if_due)
        self.changed()

    def _pause(self, least: float) -> float:
        """Return the seconds between two decisions."""
        return min(max(least, self._decided_in / _SHARE_OF_DECISIONS), _LONGEST_PAUSE_SECONDS)

    def _advance_if_due(self) -> None:
        if self._due:
            self._advance()

    def _advance(self) -> None:
        self._due = False
        began = time.thread_time()  # the time that other processes take meanwhile is not a decision's
        self._advanced_at = now = self.now()
        before = (self.rendezvous.phase, self.rendezvous.round)
        commands = self.rendezvous.advance(now)
        after = (self.rendezvous.phase, self.rendezvous.round)
        if before != after:
            log.info("round %d, %s: %d members in the world", after[1], after[0], len(self.rendezvous.world))
        if self.keyvalue.round != after[1]:
            self.keyvalue.begin_round(after[1])
            self.barriers.begin_round(after[1])
            self.on_round()
        if before != after or commands:
            self.autoscaler.disturbed()
            self.changed()
        self.history_recorder.advanced(before[1], commands)
        for command in commands:
            self._carry_out(command)
        self._publish_hosts()
        self.streams.send_intervals(self.intervals)
        self._decided_in = time.thread_time() - began

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, ReleaseLeases):
            self.ledgers.release(command.uid)
            self.progress.remove_member(command.uid)
            return
        if isinstance(command, MemberRemoved):
            log.info("pod %s is no member any more", command.uid)
        self.streams.send(command)

    def _publish_hosts(self) -> None:
        published = self.hosts.value
        role = names.ROLE_WORKER if self.framework.roles else None
        # Where the agents restart the training, nobody takes a list while a world forms, so none has to wait for it.
        settled = self.rendezvous.world_settled or not self.framework.in_process_elastic
        fresh = host_discovery.next_host_list(published, self.members, role=role, settled=settled)
        if fresh is not published:
            self.hosts.publish(fresh)
            self.changed()
