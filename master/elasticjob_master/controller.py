"""The one owner of the master's state: applies events in order, decides, and hands commands to the agents' streams.

Everything here runs in one event loop without waiting, so no event ever sees another half applied. Decisions for many
events that arrive together are made once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS

from elasticjob_master.broadcast import Broadcast
from elasticjob_master.core import discovery
from elasticjob_master.core.commands import Command, Release, Removed
from elasticjob_master.core.discovery import HostList
from elasticjob_master.core.members import Identity, Member, Members, Usage
from elasticjob_master.core.progress import Progress, Report
from elasticjob_master.core.rendezvous import Rendezvous, RoleSize, Rules, Timing
from elasticjob_master.core.shards import Ledgers
from elasticjob_master.scaler import Scaler

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
HEARTBEAT_SECONDS = 2.0
_TOGETHER_SECONDS = 0.005
_STOOD_STILL_SECONDS = 2.0
_STORE_SECONDS = 5.0
"""How old the stored progress may be; everything else is stored when it changes."""

Send = Callable[[Command], None]


class Controller:
    """The state of one job, and what may be done to it."""

    def __init__(
        self, *, framework: str, sizes: Mapping[str, RoleSize] | None = None, timing: Timing | None = None
    ) -> None:
        self.framework = FRAMEWORKS[framework]
        rules = Rules(adapts_itself=self.framework.adapts_itself, deciding_role=self.framework.deciding_role)
        self.members = Members()
        self.rendezvous = Rendezvous(self.members, rules=rules, timing=timing)
        self.rendezvous.sizes = sizes
        self.progress = Progress()
        self.ledgers = Ledgers()
        self.scaler = Scaler(self)
        self.hosts: Broadcast[HostList] = Broadcast(HostList())
        self.starts = 1
        self.on_change: Callable[[], None] = lambda: None
        self._streams: dict[str, Send] = {}
        self._due = False
        self._advanced_at = 0.0

    # --- agents ------------------------------------------------------------------------------------------------------

    def register(self, identity: Identity) -> None:
        """Make a pod a member. Raises `Refusal`."""
        known = self.members.get(identity.pod_uid) is not None
        self.rendezvous.registered(identity, self.now())
        if not known:
            log.info("registered %s at %s", identity.pod_name, identity.address)
        self._decide_soon()

    def connect(self, uid: str, send: Send, *, running_round: int, draining: bool) -> Member | None:
        """Take a stream of a member, in place of an older one. None: nobody has registered this pod."""
        member = self.members.get(uid)
        if member is None:
            return None
        older = self._streams.get(uid)
        if older is not None and older is not send:
            older(Removed(uid))
        self._streams[uid] = send
        self.rendezvous.connected(uid, self.now(), running_round=running_round, draining=draining)
        self._decide_soon()
        return member

    def disconnect(self, uid: str, send: Send) -> None:
        """A stream has ended; nothing happens when a newer one has replaced it."""
        if self._streams.get(uid) is send:
            del self._streams[uid]
            self.rendezvous.disconnected(uid, self.now())
            self._decide_soon()

    def heartbeat(self, member: Member, usage: Usage) -> None:
        """A member lives."""
        member.heard_at = self.now()
        member.usage = usage

    def step(self, member: Member, report: Report) -> None:
        """A member has trained."""
        problem = report.problem()
        if problem is not None:
            log.warning("%s: step report ignored: %s", member.identity.pod_name, problem)
            return
        member.heard_at = now = self.now()
        member.step = report.step
        self.progress.report(member.uid, report, now=now, wall=time.time())

    def started(self, member: Member, process_round: int) -> None:
        """A training process runs."""
        member.heard_at = self.now()
        self.rendezvous.started(member.uid, process_round)
        self._decide_soon()

    def exited(self, member: Member, process_round: int, exit_code: int, *, asked: bool) -> None:
        """A training process has ended."""
        member.heard_at = now = self.now()
        self.rendezvous.exited(member.uid, process_round, exit_code, now, asked=asked)
        self._decide_soon()

    def leaving(self, member: Member) -> None:
        """A member's node ends it."""
        log.info("%s is told by its node to end", member.identity.pod_name)
        self.rendezvous.leaving(member.uid, self.now())
        self._decide_soon()

    # --- the job -----------------------------------------------------------------------------------------------------

    def drain(self, pods: Mapping[str, float]) -> None:
        """These pods, and no others, shall leave by order of the operator."""
        self.rendezvous.drain(pods, self.now())
        self._decide_soon()

    def stand_by(self, places: frozenset[tuple[str, int]]) -> None:
        """The members of these roles and indices, and no others, wait for the ones they replace."""
        if self.rendezvous.stand_by(places):
            log.info("standing by: %s", ", ".join(f"{role} {index}" for role, index in sorted(places)) or "nobody")
            self._decide_soon()

    def resize(self, sizes: Mapping[str, RoleSize], *, all_ready: bool, stop_seconds: float) -> None:
        """The job's spec or size, as the operator holds it, has changed."""
        rendezvous = self.rendezvous
        rendezvous.sizes = sizes
        rendezvous.rules = replace(rendezvous.rules, all_ready=all_ready)
        rendezvous.timing = replace(rendezvous.timing, stop=stop_seconds)
        self._decide_soon()

    def changed(self) -> None:
        """Something that must be stored has changed."""
        self.on_change()

    def now(self) -> float:
        """Return the clock of all decisions."""
        return time.monotonic()

    async def run(self) -> None:
        """Let time pass."""
        last = stored_at = self.now()
        stored = self.progress.reported_at
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.now()
            if now - last > _STOOD_STILL_SECONDS:
                log.warning("stood still for %.1f s; silence in that time is nobody's fault", now - last)
                self.rendezvous.excuse(now - last)
                await asyncio.sleep(0)  # what arrived meanwhile comes first
            last = now
            self._advance()
            self.scaler.tick(now)
            if self.progress.reported_at != stored and now - stored_at >= _STORE_SECONDS:
                stored, stored_at = self.progress.reported_at, now
                self.changed()

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _decide_soon(self) -> None:
        if not self._due:
            self._due = True
            since = self.now() - self._advanced_at
            asyncio.get_running_loop().call_later(max(0.0, _TOGETHER_SECONDS - since), self._advance_if_due)
        self.changed()

    def _advance_if_due(self) -> None:
        if self._due:
            self._advance()

    def _advance(self) -> None:
        self._due = False
        self._advanced_at = now = self.now()
        before = (self.rendezvous.phase, self.rendezvous.round)
        commands = self.rendezvous.advance(now)
        after = (self.rendezvous.phase, self.rendezvous.round)
        if before != after:
            log.info("round %d, %s: %d members in the world", after[1], after[0], len(self.rendezvous.world))
        if before != after or commands:
            self.scaler.disturbed()
            self.changed()
        for command in commands:
            self._carry_out(command)
        self._publish_hosts()

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Release):
            self.ledgers.release(command.uid)
            self.progress.forget(command.uid)
            return
        send = self._streams.get(command.uid)
        if isinstance(command, Removed):
            log.info("pod %s is no member any more", command.uid)
            self._streams.pop(command.uid, None)
        if send is not None:
            send(command)

    def _publish_hosts(self) -> None:
        published = self.hosts.value
        role = names.ROLE_WORKER if self.framework.roles else None
        # Where the agents restart the training, nobody takes a list while a world forms, so none has to wait for it.
        settled = self.rendezvous.formed or not self.framework.adapts_itself
        fresh = discovery.next_list(published, self.members, role=role, settled=settled)
        if fresh is not published:
            self.hosts.publish(fresh)
            self.changed()
