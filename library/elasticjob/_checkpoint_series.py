"""Names the checkpoints of a world in their storage, finds the newest and removes old ones.

A name sorts by series, round and step. A checkpoint that a lost process writes late has an earlier
round, so it is never the newest. If the rounds have begun again at 1, in a recreated job, a new
series begins.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable

from elasticjob._state import StateInMemory
from elasticjob.checkpoint_storage import CheckpointStorage
from elasticjob.key_value import KeyValue
from elasticjob.world import World

log = logging.getLogger("elasticjob")

_KEY = "elasticjob/checkpoint"
_NAME = re.compile(r"checkpoint-(\d{4})-(\d{10})-(\d{12})-")
"""Series, round and step."""
_uses: Counter[tuple[int, str]] = Counter()
"""How often this process has used a key, by the round of its world."""


def key_of_use(key: str, world: World) -> str:
    """Return a key of the master for one use of it in this world.

    All ranks use it equally often, in the same order, so that none reads what was for another use.
    """
    _uses[world.round, key] += 1
    use = _uses[world.round, key]
    return key if use == 1 else f"{key}-{use}"


class CheckpointSeries:
    """The checkpoints that one world saves in a storage, and those that it has found there."""

    def __init__(self, storage: CheckpointStorage, world: World, *, keep: int) -> None:
        """Use a storage, in which so many complete checkpoints are kept."""
        self.keep = keep
        self._storage = storage
        self._world = world
        self._number = 0
        self._saves = 0

    def begin(self, state: StateInMemory | None) -> str:
        """Return the name of the newest checkpoint in the storage, or "".

        Rank 0 finds it for all ranks, also among those in memory.
        """
        if state is not None:
            self._number, name = state.agree_on_start(self._find_start)
        elif self._world.size == 1:
            self._number, name = self._find_start()
        else:
            store = KeyValue()
            key = key_of_use(_KEY, self._world)
            if self._world.rank == 0:
                store.set(key, "{} {}".format(*self._find_start()).encode())
            number, _, name = store.wait(key)[0].decode().partition(" ")
            self._number = int(number)
        return name

    def next_name(self, step: int) -> str:
        """Return the name of the next checkpoint; of two of the same step, the later is newer."""
        self._saves += 1
        return self._name(step, self._saves)

    def copy_of(self, name: str) -> str:
        """Return the name under which this world stores an earlier one's checkpoint."""
        match = _NAME.match(name)
        assert match is not None
        return self._name(int(match[3]), 0)

    def remove_old(self, newest: str) -> None:
        """Remove, in rank 0, complete checkpoints beyond `keep`, and incomplete ones up to this."""
        if self._world.rank != 0:
            return
        try:
            kept = self._storage.complete()[-self.keep :]
            for name in self._storage.all():
                if name <= newest and name not in kept:
                    self._storage.remove(name)
        except OSError as error:
            log.warning("old checkpoints are not removed: %s", error)

    def _name(self, step: int, save: int) -> str:
        return f"checkpoint-{self._number:04}-{self._world.round:010}-{step:012}-{save:06}"

    def _find_start(self, in_memory: Iterable[str] = ()) -> tuple[int, str]:
        matches = [_NAME.match(name) for name in (*self._storage.all(), *in_memory)]
        rounds = [(int(match[1]), int(match[2])) for match in matches if match]
        series, last_round = max(rounds, default=(0, -1))
        if last_round >= self._world.round:
            series += 1
        complete = self._storage.complete()
        return series, complete[-1] if complete else ""
