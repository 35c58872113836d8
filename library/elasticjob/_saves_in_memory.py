"""Saves the checkpoints of a `Checkpointer` in the memory of the members.

From there they are copied to another member and, by a thread, to the storage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from elasticjob._asynchronous_save import AnyOf, SaveInParts
from elasticjob._state import StateInMemory
from elasticjob._storage_errors import is_of_storage
from elasticjob._write_behind import WriteBehind
from elasticjob.commit import may_commit
from elasticjob.world import World

log = logging.getLogger("elasticjob")

ACCOUNTS = "elasticjob-data-sets.json"
"""The file of a checkpoint with the account of each data set."""


class SavesInMemory:
    """The part of one rank in saves in memory.

    Attributes:
        state: the checkpoints in memory.
        behind: copies them to the storage.
        newest: the newest complete one, or "".
    """

    def __init__(
        self, state: StateInMemory, behind: WriteBehind, world: World, *, timeout: float
    ) -> None:
        """Save in memory; the master is asked for `timeout` seconds."""
        self.state = state
        self.behind = behind
        self.newest = ""
        self._world = world
        self._timeout = timeout
        self._warned = False
        """The log says why a checkpoint was not saved."""

    def begin(self, name: str, save: SaveInParts, accounts: Callable[[], bytes]) -> bool:
        """Begin this rank's part of a checkpoint; return whether there is room for it."""
        folder = self.state.folder
        if self._world.local_rank == 0:
            folder.remove_but({name, self.newest, self.behind.source})
        path = folder.begin(name, self._world.rank)

        def begin() -> None:
            if self._world.rank == 0:
                (path / ACCOUNTS).write_bytes(accounts())
            save.begin(str(path))

        return self._has_room(name, begin)

    def end(self, name: str, save: SaveInParts) -> bool:
        """Make this rank's part whole; return whether there is room for it."""

        def end() -> None:
            save.end()
            self.state.folder.finish(name, self._world.rank, parts=self._world.size)

        return self._has_room(name, end)

    def complete(self, name: str) -> bool:
        """Make a checkpoint complete, in rank 0, of which all ranks have saved their parts."""
        if self._world.rank == 0:
            if not may_commit(self._timeout):
                return False
            self.state.folder.complete(name)
        return True

    def keep(self, name: str, any_rank: AnyOf, *, stop: bool = False) -> None:
        """Let a complete checkpoint be copied to another member and, before no stop, be stored."""
        self.state.keep(name, self._world.rank)
        self.newest = name
        if not any_rank(stop or bool(self.behind.source)):
            files = self.state.folder.part_files(name, self._world.rank)
            self.behind.start(name, name, files)

    def _has_room(self, name: str, write: Callable[[], None]) -> bool:
        """Write to this rank's part; if that fails, remove the part and return False."""
        try:
            write()
        except Exception as error:
            if not (isinstance(error, RuntimeError) or is_of_storage(error)):
                raise
            self.state.folder.remove_part(name, self._world.rank)
            if not self._warned:
                log.warning("checkpoints are saved in the storage only: %s", error)
                self._warned = True
            return False
        return True
