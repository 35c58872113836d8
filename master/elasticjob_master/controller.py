"""The one owner of the master's state.

Applies events in order, decides, and hands commands to the agents' streams. Everything here runs in
one event loop without waiting, so no event ever sees another half applied. Decisions for many
events that arrive together are made once. Monitors read the state and return what they find; only
here it is applied.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.frameworks import FRAMEWORKS, Framework, framework_of
from elasticjob_api.health import Health
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_shards import LeasesOfRound, Ledgers

from elasticjob_master.agent_streams import AgentStreams, Send
from elasticjob_master.core.accounting import Accounting
from elasticjob_master.core.history import History
from elasticjob_master.core.progress import Progress, Report
from elasticjob_master.core.rendezvous import node_check
from elasticjob_master.core.rendezvous.commands import Command, MemberRemoved, ReleaseLeases
from elasticjob_master.core.rendezvous.members import Identity, Member, Members, Usage
from elasticjob_master.core.rendezvous.rendezvous import Rendezvous
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize, Rules, Timing
from elasticjob_master.core.report_intervals import Intervals, intervals_for
from elasticjob_master.core.scale_plans import ScalePlans
from elasticjob_master.core.sync.barrier import Barriers
from elasticjob_master.core.sync.key_value import KeyValueStore
from elasticjob_master.decision_timer import DecisionTimer
from elasticjob_master.monitors import accountant, history_recorder
from elasticjob_master.monitors.findings import NewEvent
from elasticjob_master.monitors.health import HealthMonitor
from elasticjob_master.monitors.history_recorder import HistoryRecorder
from elasticjob_master.published_hosts import PublishedHosts
from elasticjob_master.scaling_control import ScalingControl
from elasticjob_master.script_order import Scripts

log = logging.getLogger(__name__)


class Controller:
    """The state of one job, and what may be done to it.

    Attributes:
        master_starts: how many masters of this job there have been, with this one.
        heartbeats: received by this master.
        suspended: whether the job is to be suspended.
        gpus: of a member, by role.
        job_status: the status of the ElasticJob as last seen.
        on_change: is called when something that must be stored has changed.
        on_store_needed: is called when something waits for a write of the state.
        on_decided: is called after each decision.
        on_new_round: is called when the values and barriers of the last round are gone.
    """

    def __init__(
        self,
        *,
        framework: str,
        sizes: Mapping[str, RoleSize] | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._framework_name = framework
        self.framework = FRAMEWORKS[framework] if sizes is None else framework_of(framework, sizes)
        self.members = Members()
        self.rendezvous = Rendezvous(self.members, rules=_rules(self.framework), timing=timing)
        self.rendezvous.sizes = sizes
        self.progress = Progress()
        self.ledgers = Ledgers()
        self.keyvalue = KeyValueStore()
        self.barriers = Barriers()
        self.history = History()
        self.accounting = Accounting()
        self.health = Health()
        self.plans = ScalePlans()
        self.health_monitor = HealthMonitor()
        self.history_recorder = HistoryRecorder()
        self.scaling = ScalingControl(self.plans, changed=self.changed)
        self.scripts = Scripts()
        self.streams = AgentStreams(self.intervals)
        # With roles of its own a framework trains on the workers only.
        self.hosts = PublishedHosts(names.ROLE_WORKER if self.framework.roles else None)
        self.master_starts = 1
        self.heartbeats = 0
        self.suspended = False
        self.gpus: Mapping[str, int] = {}
        self.job_status = ElasticJobStatus()
        self.on_change: Callable[[], None] = lambda: None
        self.on_store_needed: Callable[[], None] = lambda: None
        self.on_new_round: Callable[[], None] = lambda: None
        self.on_decided: Callable[[], None] = lambda: None
        self.decisions = DecisionTimer(self._decide, self.now)

    # --- agents
    # ------------------------------------------------------------------------------------------------------

    def register(self, identity: Identity) -> None:
        """Make a pod a member. Raises `NotCurrent`."""
        known = self.members.get(identity.pod_uid) is not None
        self.rendezvous.register(identity, self.now())
        if not known:
            log.info("registered %s at %s", identity.pod_name, identity.address)
            self.record_event("MemberRegistered", f"{identity.pod_name} at {identity.address}")
        self._decide_soon()

    def connect(
        self,
        uid: str,
        send: Send,
        *,
        running_round: int,
        draining: bool,
        joined_round: int = 0,
        leases: Sequence[LeasesOfRound] = (),
    ) -> Member | None:
        """Take a stream of a member, in place of an older one.

        None: nobody has registered this pod.
        """
        member = self.members.get(uid)
        if member is None:
            return None
        if uid in self.members.awaited:
            for problem in self.ledgers.resume_leases(uid, leases):
                log.warning(
                    "%s has leased what is not known here: %s", member.identity.pod_name, problem
                )
        self.streams.open(uid, send)
        self.rendezvous.connected(
            uid,
            self.now(),
            running_round=running_round,
            draining=draining,
            joined_round=joined_round,
        )
        self._decide_soon()
        return member

    def disconnect(self, uid: str, send: Send) -> None:
        """A stream has ended; nothing happens when a newer one has replaced it."""
        if self.streams.close(uid, send):
            self.rendezvous.disconnected(uid, self.now())
            self._decide_soon()

    def heartbeat(self, member: Member, usage: Usage) -> None:
        """A member has sent a heartbeat."""
        self.heartbeats += 1
        member.last_heard_at = self.now()
        member.usage = usage

    def step(self, member: Member, report: Report) -> None:
        """A member has reported its training steps."""
        problem = report.validation_error()
        if problem is None and report.round > self.rendezvous.round:
            problem = f"round is {report.round}; it must be at most {self.rendezvous.round}, the present one"
        if problem is not None:
            log.warning("%s: step report ignored: %s", member.identity.pod_name, problem)
            return
        member.last_heard_at = now = self.now()
        if self.framework.in_process_elastic:
            report = replace(
                report, round=self.rendezvous.round
            )  # its process goes on from world to world
        wall = time.time()
        present = self.rendezvous.round
        stepped = self.progress.add_report(member.uid, report, now=now, wall=wall)
        member.step_times.add(report, report.steps or max(0, report.step - member.step), now)
        if (
            stepped and report.round == present
        ):  # what was trained before says nothing of the present world
            self._record(
                self.health_monitor.step_finished(report, process_round=present, wall=wall)
            )
        member.step = report.step

    def started(self, member: Member, process_round: int) -> None:
        """A training process runs."""
        member.last_heard_at = self.now()
        self.rendezvous.process_started(member.uid, process_round)
        self._decide_soon()

    def exited(
        self,
        member: Member,
        process_round: int,
        exit_code: int,
        *,
        requested: bool,
        retry: bool = False,
        failed_seconds_ago: float = 0.0,
    ) -> None:
        """A training process has ended. Arguments as those of `Rendezvous.process_exited`."""
        member.last_heard_at = now = self.now()
        if exit_code and not requested and member.process_round == process_round:
            pod = member.identity.pod_name
            self.record_event(
                "ProcessFailed", f"{pod} in round {process_round}: exit code {exit_code}"
            )
        self.rendezvous.process_exited(
            member.uid,
            process_round,
            exit_code,
            now,
            requested=requested,
            retry=retry,
            failed_seconds_ago=failed_seconds_ago,
        )
        self._decide_soon()

    def joins(self, uid: str, process_round: int, left_round: int) -> None:
        """A process asks for its place in the next world. Raises as `Rendezvous.joins`."""
        self.rendezvous.joins(uid, process_round, left_round)
        self._decide_soon()

    def joined(self, member: Member, round_: int) -> None:
        """A process has got its place in a world."""
        member.last_heard_at = self.now()
        self.rendezvous.joined(member.uid, round_)
        self._decide_soon()

    def leaving(self, member: Member) -> None:
        """A member's node ends it."""
        log.info("%s is told by its node to end", member.identity.pod_name)
        self.rendezvous.member_leaving(member.uid, self.now())
        self._decide_soon()

    def node_checked(
        self, member: Member, number: int, seconds: float, problem: str, unreached: Sequence[str]
    ) -> None:
        """A member has measured its node."""
        member.last_heard_at = self.now()
        node_check.record_answer(
            member, number, seconds=seconds, problem=problem, unreached=unreached
        )
        self._decide_soon()

    # --- the job
    # -----------------------------------------------------------------------------------------------------

    def drain(self, pods: Mapping[str, float]) -> None:
        """These pods, and no others, shall leave by order of the operator, each in so many seconds."""
        self.rendezvous.set_draining(pods, self.now())
        self._decide_soon()

    def stand_by(self, places: frozenset[tuple[str, int]]) -> None:
        """The members of these roles and indices, and no others, wait for the ones they replace."""
        if self.rendezvous.set_standby(places):
            log.info(
                "standing by: %s",
                ", ".join(f"{role} {index}" for role, index in sorted(places)) or "nobody",
            )
            self._decide_soon()

    def resize(
        self,
        sizes: Mapping[str, RoleSize],
        *,
        all_ready: bool,
        stop_seconds: float,
        domains: Mapping[tuple[str, int], str] = MappingProxyType({}),
    ) -> None:
        """The job's spec or size, or where its members run, as the operator holds it, has changed."""
        rendezvous = self.rendezvous
        rendezvous.sizes = sizes
        rendezvous.domains = domains
        self.framework = framework_of(self._framework_name, sizes)
        rendezvous.rules = _rules(self.framework, all_ready=all_ready)
        rendezvous.timing = replace(rendezvous.timing, stop=stop_seconds)
        self._decide_soon()

    def set_health(self, health: Health) -> None:
        """`spec.health` is known, or has changed."""
        if health != self.health:
            self.health = health
            self.rendezvous.timing = replace(
                self.rendezvous.timing, lost=float(health.lost_seconds)
            )
            self.rendezvous.node_check = health.node_check
            self._decide_soon()

    def plan_changed(self, plan: ScalePlan, number: int | None) -> None:
        """A ScalePlan of the job is new or has changed.

        `number` is that of a plan of the job's auto-scaler.
        """
        self.plans.put(plan, number)
        self._record(history_recorder.plan_changed(self.history, plan))

    def record_event(self, reason: str, message: str) -> None:
        """Record in the history what has happened; docs/queries.md lists the reasons."""
        self.history.add_event(reason, message, time.time())
        self.changed()

    def expected_members(self) -> int:
        """Return how many members there are, or shall be if that is more."""
        return max(
            len(self.members), sum(size.desired for size in (self.rendezvous.sizes or {}).values())
        )

    def unfit_pods(self) -> dict[str, str]:
        """Return the pods whose nodes are not fit, and what is wrong there."""
        return dict(self.rendezvous.unfit.values())

    @property
    def phase(self) -> Phase:
        """What the job is doing, as people are shown it."""
        over = self.rendezvous.finished_at is not None and self.rendezvous.phase == "waiting"
        return "finishing" if over else self.rendezvous.phase

    @property
    def intervals(self) -> Intervals:
        """How often the agents send heartbeats and step reports."""
        return intervals_for(len(self.members), lost=self.rendezvous.timing.lost)

    def changed(self) -> None:
        """Something that must be stored has changed."""
        self.on_change()

    def share_state(self) -> None:
        """Another master can claim the stored state.

        Start no world, and publish no hosts, before they are stored.
        """
        self.rendezvous.shared_state = True

    def stored(self, process_round: int, host_version: int, began_at: float) -> None:
        """The state was stored, with this world and host list, by a write that began at this time."""
        self.rendezvous.stored(process_round, began_at)
        self.hosts.publish_latest(stored_version=host_version)
        self.decisions.request()

    def continue_after(self, earlier_starts: int) -> None:
        """The state of an earlier master was restored, which was the one of this number."""
        self.master_starts = earlier_starts + 1
        self.ledgers.may_lag_behind = True

    def now(self) -> float:
        """Return the clock of all decisions."""
        return time.monotonic()

    def tick_monitors(self, now: float) -> None:
        """Let the monitors see the state, and apply what they find."""
        wall = time.time()
        if (script := self.scripts.due(self.members, now, wall)) is not None:
            self.streams.send(script)
        self._record(self.scaling.tick(self, now))
        health = self.health_monitor.tick(self, now, wall=wall)
        for event in health.events:
            self._record(event)
        if health.restart:
            self.rendezvous.restart_training()
        sample = self.history_recorder.tick(self, now, wall=wall)
        if sample is not None:
            self.history.add_sample(sample, self.progress.metrics)
        moment = accountant.moment(self, stalled_since=self.health_monitor.stalled_since)
        self.accounting.advance(now, wall, moment, lambda: accountant.held(self))

    def record_end(self) -> None:
        """This master ends: record how far the training is, which may be its end."""
        if self.rendezvous.round:
            last = history_recorder.sample(self, self.now(), wall=time.time())
            self.history.add_sample(last, self.progress.metrics)
            self.changed()

    # --- decisions
    # ---------------------------------------------------------------------------------------------------

    def _decide_soon(self) -> None:
        self.decisions.request()
        self.changed()

    def _decide(self) -> None:
        rendezvous = self.rendezvous
        before = (rendezvous.phase, rendezvous.round)
        commands = rendezvous.advance(self.now())
        after = (rendezvous.phase, rendezvous.round)
        if before != after:
            log.info(
                "round %d, %s: %d members in the world", after[1], after[0], len(rendezvous.world)
            )
        if self.keyvalue.round != after[1]:
            self.keyvalue.begin_round(after[1])
            self.barriers.begin_round(after[1])
            self.on_new_round()
        if before != after or commands:
            self.scaling.autoscaler.world_changed()
            self.changed()
        removed = self.members.removed
        self.members.removed = []
        for event in history_recorder.decided(self, before[1], commands, removed, self.now()):
            self._record(event)
        for command in commands:
            self._carry_out(command)
        self._publish_hosts()
        if rendezvous.store_needed:
            self.on_store_needed()
        self.streams.send_intervals(self.intervals)
        self.on_decided()

    def _record(self, event: NewEvent | None) -> None:
        if event is not None:
            self.record_event(*event)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, ReleaseLeases):
            self.ledgers.release(command.uid)
            self.progress.remove_member(command.uid)
            return
        if isinstance(command, MemberRemoved):
            log.info("pod %s is no member any more", command.uid)
        self.streams.send(command)

    def _publish_hosts(self) -> None:
        # Where the agents restart the training, nobody takes a list while a world forms, so none
        # has to wait for it.
        settled = self.rendezvous.world_settled or not self.framework.in_process_elastic
        if self.hosts.update(self.members, settled=settled):
            self.changed()
            if self.rendezvous.shared_state:
                self.on_store_needed()
            else:
                self.hosts.publish_latest(stored_version=self.hosts.latest.version)


def _rules(framework: Framework, *, all_ready: bool = False) -> Rules:
    return Rules(
        in_process_elastic=framework.in_process_elastic,
        elastic_driver=framework.elastic_driver,
        deciding_role=framework.deciding_role,
        stop_order=framework.stop_order,
        all_ready=all_ready,
    )
