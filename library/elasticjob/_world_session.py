"""Takes one process through the worlds of its job, with any framework's groups."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace

from elasticjob._agent_connection import AgentConnection, AgentError, agent_connection
from elasticjob._committed_state import CommittedState, Stored
from elasticjob._world_group import Connections, Group, Meeting
from elasticjob._world_watch import Watch, event_loops
from elasticjob.checkpoint_storage import open_storage
from elasticjob.checkpointer import Checkpointer
from elasticjob.progress import confirm_stop, should_stop
from elasticjob.world import members, next_world, world

log = logging.getLogger("elasticjob")

_NEWS_SECONDS = 1.0
_FLUSH_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_ERROR_SECONDS = 120.0
"""The time from a broken collective to the news of another world, or to the end of the last rank.

The other ranks wait twice as long: if no process has gone, the end of one brings another world,
and the others still have the state.
"""


class Session:
    """This process in its worlds."""

    def __init__(
        self,
        state: CommittedState,
        group: Group,
        folder: str | os.PathLike[str] | None,
        keep: int,
        timeout: float,
    ) -> None:
        """Begin; see the framework's `worlds`."""
        self.state = state
        self.errors = group.errors
        self._folder = folder
        self._keep = keep
        self._timeout = timeout
        self._agent: AgentConnection | None = agent_connection()
        self._group = group
        state._storage = None if folder is None else open_storage(folder)
        self._watch = Watch(self._agent, self._group, state._hand_over) if self._agent else None
        self._meeting: Meeting | None = None
        self._checkpointer: Checkpointer | None = None
        should_stop()  # from now on the agent asks this process instead of sending SIGTERM

    def enter(self) -> Meeting:
        """Join the newest world, with the newest state; return its meeting."""
        failures: tuple[type[Exception], ...] = (*self.errors, AgentError)
        while True:
            here = next_world()
            everyone = members()
            pods = frozenset(member.pod for member in everyone)
            if here.rank == 0:
                # The store outlives the world, so its own connection is not one of the group's.
                self._group.serve(here.address)
            connections = Connections(self._group.port(here.address))
            meeting = Meeting(here.round, here.rank, here.size, pods, connections)
            self._checkpointer = None
            self._set_meeting(meeting)
            try:
                self._group.join(meeting, everyone[0].address, self._interrupted)
                meeting.event_loops = event_loops()
                meeting.formed = True
                self.state._synchronize(meeting, self._group, self._stored)
                meeting.joined = True
                return meeting
            except failures as error:
                if meeting.formed and not (self.is_broken() or self._interrupted()):
                    raise  # of the program, such as a checkpoint that does not fit the model
                # The rest of a message may be a stack of C++.
                reason = str(error).partition("\n")[0]
                log.warning("the world of round %d was not joined: %s", here.round, reason)
                failure = error.with_traceback(None)
            self.leave(failure)

    def is_broken(self) -> bool:
        """Return whether a process of this world has gone, or the world has ended."""
        if self._meeting is None or not self._group.notices_ends:
            return True
        return self._meeting.connections.broken()

    def commit(self, *, save: bool) -> bool:
        """Commit the state in all ranks; return whether this world ends after that."""
        assert self._meeting is not None
        ends = should_stop() or (self._watch is not None and self._watch.due(self._meeting))
        offer = self.state._offer()
        offers = [offer]
        if self._meeting.size > 1 and offer:
            gathered = self._group.gather((ends, offer))
            ends = any(each for each, _ in gathered)
            offers = [each for _, each in gathered]
        else:
            ends = self._any_rank(ends)
        self.state._commit(self._meeting.round, offers)
        all_leave = self.state._secure(self._meeting, self._group, ends=ends)
        if (save or all_leave) and (self._meeting.rank == 0 or self.state._divided):
            self._save()
        if ends:
            # Each rank has this commit before one of them ends.
            self._meet()
        return ends

    def leave(self, error: Exception | None) -> None:
        """Leave this world, and wait for another one; or exit if this process was asked to."""
        meeting = self._meeting
        assert meeting is not None
        self._set_meeting(None)
        if error is not None:
            self._say_left(meeting, ends=False)
        self._group.destroy(meeting.connections)
        patience = self._timeout
        if error is not None:
            is_last = meeting.rank == meeting.size - 1
            patience = _ERROR_SECONDS if is_last else 2 * _ERROR_SECONDS
        deadline = time.monotonic() + patience
        while self._agent is None or self._agent.notified_round <= meeting.round:
            if should_stop():
                self._exit(meeting)
            if self._agent is None or time.monotonic() > deadline:
                raise error or TimeoutError("no other world was announced")
            self._agent.wait_for_world(meeting.round, _NEWS_SECONDS)
        if should_stop():
            self._exit(meeting)

    def finish(self) -> bool:
        """End the training: all ranks have the last commit, and rank 0 saves it.

        If another world was announced, its new processes would wait for these ones for ever: then
        return False, and finish in that world; also if rank 0 must stop before it could save.
        """
        assert self._meeting is not None
        divided = self.state._divided
        try:
            saved = (self._meeting.rank != 0 and not divided) or self._save_end()
        except self.errors as error:
            if not (divided and self.is_broken()):
                raise
            log.warning("the end of the training is not saved: a rank has gone", exc_info=error)
            return False
        with contextlib.suppress(*self.errors):  # the end of another rank changes nothing any more
            if self._any_rank(not saved or self._other_world()):
                return False
            self._meet()
            for opened in self.state._data_sets.values():
                opened.report()
        self._flush()
        return True

    def close(self) -> None:
        """End the group and the thread that follows the news."""
        if self._watch is not None:
            self._watch.close()
        if self._meeting is not None:
            meeting = self._meeting
            self._set_meeting(None)
            self._group.destroy(meeting.connections)

    def _exit(self, meeting: Meeting) -> None:
        if meeting.rank == 0 and meeting.joined and not self.state._divided:
            self._save()
        if self._flush():
            # The others need not wait for the end of this interpreter, which takes a second.
            self._say_left(meeting, ends=True)
        confirm_stop()
        raise SystemExit(0)

    def _say_left(self, meeting: Meeting, *, ends: bool) -> None:
        if self._agent is not None:
            self._agent.send({"left": meeting.round, "ends": ends})

    def _flush(self) -> bool:
        """Return whether the master has answered all reports of shards."""
        answered = [opened.flush(_FLUSH_SECONDS) for opened in self.state._data_sets.values()]
        return all(answered)

    def _interrupted(self) -> bool:
        if should_stop():
            return True
        return self._other_world()

    def _other_world(self) -> bool:
        newest = self._agent.notified_round if self._agent else 0
        return self._meeting is not None and newest > self._meeting.round

    def _any_rank(self, mine: bool) -> bool:
        alone = self._meeting is None or self._meeting.size == 1
        return mine if alone else self._group.any_rank(mine)

    def _meet(self) -> None:
        """Wait for all ranks; the end of one of them changes nothing any more."""
        if self._meeting is not None and self._meeting.size > 1:
            with contextlib.suppress(*self.errors):
                self._group.part(self._meeting)

    def _set_meeting(self, meeting: Meeting | None) -> None:
        self._meeting = meeting
        if self._watch is not None:
            self._watch.meeting = meeting

    # --- checkpoints, by rank 0

    def _stored(self) -> Stored | None:
        with self._using_storage():
            if self._folder is None or (found := self._open().found) is None:
                return None
            storage = open_storage(self._folder)
            content = storage.read(_name(found), self.state._file)
            return Stored(content, self._open()._accounts)

    def _save(self) -> bool:
        if self._folder is None:
            return True
        committed = self.state._committed
        with self._using_storage():
            if self._meeting is not None and self._meeting.rank != 0:
                return self.state._follow_write()
            saved = self._open().save(
                committed.step, lambda address: self.state._write(_name(address))
            )
            self.state._end_write()
            if saved:
                return True
        log.warning("step %d: no checkpoint was saved; the one before counts", committed.step)
        return False

    def _save_end(self) -> bool:
        """Retry, or the job would succeed with an older model."""
        any_of = self._any_rank if self.state._divided else bool
        while not any_of(self._other_world()):
            if not any_of(not self._save()):
                return True
            if any_of(should_stop()):
                return False
            time.sleep(_RETRY_SECONDS)
        return False

    @contextlib.contextmanager
    def _using_storage(self) -> Iterator[None]:
        meeting = self._meeting
        if meeting is not None:
            meeting.uses_storage = True
        try:
            yield
        finally:
            if meeting is not None:
                meeting.uses_storage = False

    def _open(self) -> Checkpointer:
        """Return the checkpoints of this world, of which this process alone takes care."""
        if self._checkpointer is None:
            assert self._folder is not None
            self._checkpointer = Checkpointer(
                self._folder, keep=self._keep, world=replace(world(), size=1)
            )
            opened = self.state._data_sets
            self._checkpointer._data_sets = {name: each.inner for name, each in opened.items()}
        return self._checkpointer


def _name(address: str) -> str:
    """Return the name of a checkpoint at a path or URL."""
    return os.path.basename(address.rstrip("/"))  # noqa: PTH119 (or a URL)
