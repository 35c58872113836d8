"""Saves a model together with the account of its data, in all ranks after the same step.

A world begins at the newest checkpoint, with the data that this model has not seen. So every sample
is in the model once, in spite of lost workers and masters, if the program takes its shards from the
data sets that it has opened here.

In a job with `spec.agent.stateMemory` the checkpoints of `step` are saved in the memory of the
members, and written to the storage while the training goes on.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from elasticjob._agent_connection import AgentError, agent_connection
from elasticjob._arguments import check_counts, check_function, check_number
from elasticjob._asynchronous_save import AnyOf, AsynchronousSave, SaveInParts
from elasticjob._checkpoint_interval import CheckpointInterval
from elasticjob._checkpoint_series import CheckpointSeries, key_of_use
from elasticjob._saves_in_memory import ACCOUNTS, SavesInMemory
from elasticjob._state import StateInMemory, open_state
from elasticjob._storage_errors import is_of_storage
from elasticjob._write_behind import WriteBehind
from elasticjob.agreement import AnyRank, can_stop_together, should_stop_together
from elasticjob.checkpoint_storage import COMPLETE, CheckpointStorage, open_storage
from elasticjob.commit import may_commit
from elasticjob.progress import confirm_stop, report_step, should_stop
from elasticjob.shards import Shards
from elasticjob.world import World
from elasticjob.world import world as present_world

log = logging.getLogger("elasticjob")

_SECOND = 1.0
_LONGEST_PAUSE = 60
"""Seconds between two tries to save the end of a training."""
_MOST_TRIES = 10
"""Tries that fail one after the other because of the storage; they take about five minutes."""
_SAVES = "writes the model into the folder that it is given"
AnyShards = TypeVar("AnyShards", bound=Shards[Any])
Save = Callable[[str], object]
"""Writes the model into a folder (a path or a URL). Every rank calls it."""


def _alone(mine: bool) -> bool:
    return mine


def _through_master(world: World) -> AnyOf:
    """Return an agreement of the ranks."""
    return _alone if world.size == 1 else AnyRank(key_of_use("elasticjob/any-rank", world))


def _decoded(accounts: bytes) -> dict[str, bytes]:
    return {name: base64.b64decode(state) for name, state in json.loads(accounts).items()}


class Checkpointer:
    """Saves and finds the checkpoints of one job, and stops its ranks together.

        checkpointer = elasticjob.Checkpointer("checkpoints")
        step = load(checkpointer.found) if checkpointer.found else 0
        while step < total:
            step = train(step)
            checkpointer.step(step, save, due=step % 500 == 0)
        checkpointer.finish(step, save)

    Attributes:
        found: the path or URL of the checkpoint at which this world begins, the same in all ranks;
            None if none exists.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        any_rank: AnyOf | None = None,
        keep: int = 3,
        timeout: float = 15.0,
        failure_hours: float = 6.0,
        asynchronous: bool = False,
        world: World | None = None,
    ) -> None:
        """Find the newest checkpoint.

        Args:
            folder: the folder of this job's checkpoints, which all members share, or a URL for
                fsspec.
            any_rank: returns whether its argument is true in any rank, for example by an
                all-reduce. All ranks call it equally often, in each save. Without it the ranks
                agree on a save through the master, so a save waits while no master runs. Needed in
                a world with several roles, which call it after every step to agree on a stop.
            keep: the number of complete checkpoints to keep, at least 1.
            timeout: the seconds that a save may wait for the master. Keep it below half of
                `drainSeconds`, the time for a stop.
            failure_hours: the mean time between two failures of a pod, more than 0; see `step`.
            asynchronous: `save` returns a function that writes what it has not written yet, or
                None. `step` lets a thread call it while the training goes on, so it must not use
                what later steps change.
            world: the world whose ranks save together. Default: the current world. In a world of
                one process, this process alone saves for the others.

        Raises:
            ValueError: see `any_rank`, `keep` and `failure_hours`; or `asynchronous` in a world of
                several roles, whose ranks could not agree in a thread.
            AgentError: this world has ended.
        """
        self._world = world or present_world()
        self._stops_together = self._world.size == 1 or can_stop_together()
        if any_rank is None and not self._stops_together:
            raise ValueError(
                f"any_rank is None; a world of {self._world.size} ranks needs it to agree on its "
                "stops and saves, unless all have an agent and the same role"
            )
        if any_rank is not None:
            check_function("any_rank", any_rank, "returns whether its argument is true in any rank")
        check_counts(keep=keep)
        check_number("timeout", timeout)
        check_number("failure_hours", failure_hours, finite=False)
        if asynchronous and not self._stops_together:
            raise ValueError(
                f"asynchronous=True: the {self._world.size} ranks of this world have several "
                "roles, or no agent, so they cannot agree in a thread; leave it out"
            )
        if failure_hours == 0:
            raise ValueError(f"{failure_hours=} must be more than 0")
        self._any_rank = any_rank or _through_master(self._world)
        self._timeout = timeout
        self._storage: CheckpointStorage = open_storage(folder)
        self._series = CheckpointSeries(self._storage, self._world, keep=keep)
        self._data_sets: dict[str, Shards[Any]] = {}
        self._stored = ""
        """The newest checkpoint of this process in the storage."""
        self._write_seconds = 0.0
        """What the writes of this process have taken since the last report of them."""
        self._size = 0
        """The bytes of the first one there; 0: not known."""
        self._problem: Exception | None = None
        """Why the storage has not taken the last checkpoint of this rank."""
        # Processes that save alone, or have several roles, need not all have a Checkpointer.
        several_save = world is None and self._stops_together
        state = open_state(folder, self._world) if several_save else None
        self._memory = self._saves_in_memory(state) if state is not None else None
        self._later: AsynchronousSave | None = None
        if asynchronous:
            # The ranks agree in a thread, so not by a collective of the program.
            self._later = AsynchronousSave(_through_master(self._world))
        pods = self._world.size / self._world.local_size
        self._interval = CheckpointInterval(
            self._any_rank, failure_seconds=3600 * failure_hours / pods, now=time.monotonic()
        )
        name = self._series.begin(state)
        self.found: str | None = None
        self._accounts: dict[str, bytes] = {}
        if state is not None and state.found:
            self.found = str(state.folder.view(state.found, self._world.local_rank))
            self._accounts = _decoded(Path(self.found, ACCOUNTS).read_bytes())
            self._store_found(state.found)
        elif name:
            self.found = self._storage.address(name)
            self._accounts = _decoded(self._storage.read(name, ACCOUNTS))

    def open(
        self, opener: Callable[..., AnyShards], name: str, *arguments: Any, **options: Any
    ) -> AnyShards:
        """Open a data set as it was when the found model was saved.

        Args:
            opener: `elasticjob.shards`, `text_shards` or `stream_shards`.
            name: the data set's name within the job.
            arguments: further arguments for the opener.
            options: keyword arguments for the opener.
        """
        check_function("opener", opener, "opens a data set, such as elasticjob.shards")
        restore = self._accounts.get(name, b"")
        self._data_sets[name] = opened = opener(name, *arguments, restore=restore, **options)
        return opened

    def step(self, step: int, save: Save, *, due: bool | None = False, **report: Any) -> None:
        """Report a step, save if `due` or if this world has to stop, and end after a stop.

        All ranks call this after the same steps with the same `due`. Before it they call `done` for
        the shards of the step.

        Args:
            step: the finished step, counted from the start of the job.
            save: writes the model.
            due: whether a checkpoint is due. If None, the ranks save as often as it pays, by the
                measured time of a save and `failure_hours`.
            report: further arguments for `elasticjob.report_step`.

        Raises:
            SystemExit: this process has confirmed a stop.
            AgentError: this world has ended.
        """
        check_function("save", save, _SAVES)
        report_step(step, **report)
        if self._later is not None:
            self._later.raise_error()
        if self._stops_together:
            stop = should_stop_together()
        else:
            stop = self._any_rank(should_stop())
        began = time.monotonic()
        saves = stop or (self._interval.due() if due is None else due)
        if saves and not self._save_soon(step, save, stop=stop):
            log.warning("step %d: no checkpoint was saved; the one before counts", step)
        if saves and not stop and due is None:
            self._interval.saved(began, time.monotonic())
        if saves and self._world.rank == 0:
            self._report_write()
        if stop:
            confirm_stop()
            raise SystemExit(0)

    def finish(self, step: int, save: Save) -> None:
        """Save the end of the training; retry, or the job would succeed with an older model.

        While no master runs, this waits.

        Raises:
            OSError: the storage has not taken it in some minutes, for example because it is full.
            SystemExit: this process has confirmed a stop.
            AgentError: this world has ended.
        """
        check_function("save", save, _SAVES)
        failures = 0
        pause = 1
        while not self.save(step, save):
            failures = failures + 1 if self._any_rank(self._problem is not None) else 0
            if failures >= _MOST_TRIES:
                raise self._not_saved(step) from self._problem
            for _ in range(pause):
                if self._any_rank(should_stop()):
                    confirm_stop()
                    raise SystemExit(0)
                time.sleep(_SECOND)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def save(self, step: int, save: Save) -> bool:
        """Save a checkpoint in all ranks or in none; return whether it is saved in the storage."""
        self._end_earlier_saves()
        name = self._series.next_name(step)
        parts = self._in_parts(save)
        self._problem = None
        saved = (
            self._all(self._flush)
            and self._all(lambda: self._begin(name))
            and self._all(lambda: self._write(parts, name, whole=True))
            and self._all(lambda: self._complete(name))
        )
        return self._ended(name, saved=saved)

    def _report_write(self) -> None:
        """Tell the master what a write takes: it says what checkpoints in memory would save.

        The agreements about a save do not count, as one in memory needs them, too.
        """
        agent = agent_connection()
        if agent is None or not self._stored:
            return
        try:
            self._size = self._size or self._storage.size(self._stored)
        except Exception as error:
            if not is_of_storage(error):
                raise
            return
        agent.saved(self._write_seconds, self._size)
        self._write_seconds = 0.0

    def _save_soon(self, step: int, save: Save, *, stop: bool) -> bool:
        """Save a checkpoint in memory, if there is room, and write it to the storage later.

        Without such memory, save it in the storage. A stop saves in the storage, too, if the memory
        of a member is lost with it.
        """
        if self._later is not None and not stop:
            return self._save_later(self._later, step, save)
        memory = self._usable_memory()
        if memory is None:
            return self.save(step, save)
        if stop and (not memory.state.movable or self._any_rank(memory.state.leaving)):
            return self.save(step, save)
        if self._later is not None:
            self._later.wait()
        if not self._all(self._flush):
            return False
        name = self._series.next_name(step)
        parts = self._in_parts(save)
        if not self._all(
            lambda: memory.begin(name, parts, self._data_accounts) and memory.end(name, parts)
        ):
            return self.save(step, save)
        if not self._all(lambda: memory.complete(name)):
            return False
        memory.keep(name, self._any_rank, stop=stop)
        return True

    def _save_later(self, later: AsynchronousSave, step: int, save: Save) -> bool:
        """Call `save` in all ranks, and let a thread of each end the save.

        The training waits for the thread if it saves more often than the storage can take it.
        """
        later.wait()
        memory = self._usable_memory()
        if memory is None:
            self._end_earlier_saves()
        if not self._all(self._flush):
            return False
        name = self._series.next_name(step)
        parts = self._in_parts(save)
        self._problem = None
        if memory is None:
            if not (
                self._all(lambda: self._begin(name))
                and self._all(lambda: self._write(parts, name, whole=False))
            ):
                return self._ended(name, saved=False)
            later.start(lambda: self._end_in_storage(name, parts, later.any_rank))
        elif self._all(lambda: memory.begin(name, parts, self._data_accounts)):
            later.start(lambda: self._end_in_memory(memory, name, parts, later.any_rank))
        else:
            return self.save(step, save)
        return True

    def _end_in_storage(self, name: str, parts: SaveInParts, any_rank: AnyOf) -> None:
        """End a save in the storage, in a thread of each rank."""
        saved = self._all(parts.end, any_rank) and self._all(lambda: self._complete(name), any_rank)
        self._ended(name, saved=saved)

    def _end_in_memory(
        self, memory: SavesInMemory, name: str, parts: SaveInParts, any_rank: AnyOf
    ) -> None:
        """End a save in memory, in a thread of each rank.

        If there is no room for it, later ones are saved in the storage, which this one cannot be:
        the model has changed.
        """
        if not self._all(lambda: memory.end(name, parts), any_rank):
            memory.state.usable = False
        elif self._all(lambda: memory.complete(name), any_rank):
            memory.keep(name, any_rank)

    def _ended(self, name: str, *, saved: bool) -> bool:
        if saved:
            self._stored = name
        else:
            self._series.remove_old(name)  # its files may be what fills the disk
        return saved

    def _end_earlier_saves(self) -> None:
        """Wait for a save that a thread ends, and give up a copy from memory to the storage."""
        if self._later is not None:
            self._later.wait()
        if self._memory is not None:
            self._memory.behind.stop(self._timeout)

    def _in_parts(self, save: Save) -> SaveInParts:
        return SaveInParts(save, asynchronous=self._later is not None)

    def _usable_memory(self) -> SavesInMemory | None:
        return self._memory if self._memory is not None and self._memory.state.usable else None

    def _saves_in_memory(self, state: StateInMemory) -> SavesInMemory:
        # The ranks agree in a thread, so not by a collective of the program.
        one = self._world.size == 1
        any_rank: AnyOf = _alone if one else AnyRank(f"{state.key}/stored")
        behind = WriteBehind(
            self._storage,
            any_rank,
            begin=self._begin_copy,
            complete=self._complete,
            remove=self._series.remove_old,
        )
        return SavesInMemory(state, behind, self._world, timeout=self._timeout)

    def _store_found(self, name: str) -> None:
        """Write the found checkpoint from memory to the storage, in rank 0, which has all parts.

        It gets a new name, as a process of the earlier world may still write to the old one.
        """
        memory = self._memory
        assert memory is not None
        memory.newest = name
        files = memory.state.folder.files(name) if self._world.rank == 0 else {}
        memory.behind.start(name, self._series.copy_of(name), files)

    def _begin_copy(self, name: str) -> bool:
        if self._world.rank == 0:
            self._storage.begin(name)
        return True

    def _all(self, act: Callable[[], bool], any_rank: AnyOf | None = None) -> bool:
        """Call a function in every rank; return whether it has succeeded in all."""
        try:
            succeeded = act()
        except Exception as error:
            if is_of_storage(error):
                self._problem = error
            elif not isinstance(error, (TimeoutError, AgentError)):
                raise
            log.warning("the checkpoint is given up: %s", error)
            succeeded = False
        return not (any_rank or self._any_rank)(not succeeded)

    def _flush(self) -> bool:
        deadline = time.monotonic() + self._timeout
        return all(
            each.flush(max(0.0, deadline - time.monotonic())) for each in self._data_sets.values()
        )

    def _begin(self, name: str) -> bool:
        if self._world.rank == 0:
            accounts = self._data_accounts()
            self._storage.begin(name)
            self._storage.write(name, ACCOUNTS, accounts)
        return True

    def _data_accounts(self) -> bytes:
        # No shard is reported during a save, so this is the account of the model's samples.
        accounts = {name: each.checkpoint(self._timeout) for name, each in self._data_sets.items()}
        text = json.dumps(
            {name: base64.b64encode(state).decode() for name, state in accounts.items()}
        )
        return text.encode()

    def _write(self, parts: SaveInParts, name: str, *, whole: bool) -> bool:
        began = time.monotonic()
        parts.begin(self._storage.address(name))
        if whole:
            parts.end()
        self._write_seconds += time.monotonic() - began
        return True

    def _complete(self, name: str) -> bool:
        if self._world.rank != 0:
            return True
        if not may_commit(self._timeout):
            return False
        self._storage.write(name, COMPLETE, b"")
        self._series.remove_old(name)
        return True

    def _not_saved(self, step: int) -> OSError:
        why = self._problem or "another rank could not write, and its log says why"
        return OSError(
            f"step {step}: the end of the training cannot be saved in {self._storage.address('')}: "
            f"{why}; {_MOST_TRIES} tries have failed. Free space there, or keep fewer checkpoints "
            f"(keep={self._series.keep}): the training continues from the last one when it starts "
            "again"
        )
