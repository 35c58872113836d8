"""Keeps the newest checkpoints of a training in the memory of its members.

The processes of a new world agree on the newest checkpoint that all of them can have: each member's
first process publishes what its folder holds, rank 0 chooses, and the agents fetch the parts that
are missing from each other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.limits import MAX_CHECKPOINT_PARTS

from elasticjob._agent_connection import AgentConnection, AgentError, agent_connection
from elasticjob._state_choice import (
    EMPTY,
    Choice,
    Inventory,
    decode,
    encode,
    newest,
    source,
)
from elasticjob._state_folder import StateFolder
from elasticjob.agreement import AnyRank
from elasticjob.key_value import KeyValue
from elasticjob.world import World, members

log = logging.getLogger("elasticjob")

_INVENTORY_SECONDS = 60.0
"""The time for the inventories of all members, counted from that of rank 0. A member with another
version of the library sends none.
"""
_FETCHES = 16
"""Parts that a member fetches at the same time."""
_uses: Counter[tuple[int, str]] = Counter()
"""How often this process has opened a store, by round and store."""


class StateInMemory:
    """The checkpoints of one storage folder that are kept in memory.

    Attributes:
        folder: the folder of this member.
        key: the name of this use of the store in this world, the same in all ranks.
        usable: a world of the same members could begin at a checkpoint in memory.
        movable: the members give their parts to others, so one of other members could, too.
        found: the checkpoint in memory at which this world begins, or "".
    """

    def __init__(
        self, folder: StateFolder, store: str, agent: AgentConnection, world: World
    ) -> None:
        """Use a member's folder."""
        self.folder = folder
        self.usable = False
        self.movable = False
        self.found = ""
        self._store = store
        self._agent = agent
        self._world = world
        self._first = world.local_rank == 0
        use = world.round, store
        self.key = f"elasticjob/state/{store}/{world.round}-{_uses[use]}"
        _uses[use] += 1
        self._position = 0
        self._peer: str | None = None

    def agree_on_start(
        self, find_stored: Callable[[Iterable[str]], tuple[int, str]]
    ) -> tuple[int, str]:
        """Choose the checkpoint at which this world begins; raises AgentError if it has ended.

        Return the series of this world's checkpoints and the newest checkpoint of the storage,
        which rank 0 finds by `find_stored`, given the names of the checkpoints in memory.
        """
        everyone = members() if self._world.size > 1 else []
        firsts = [rank for rank, member in enumerate(everyone) if member.local_rank == 0] or [0]
        self._position = firsts.index(self._world.rank - self._world.local_rank)
        inventory = Inventory(self._address(), self.folder.held())
        values = KeyValue()
        if self._first and self._world.size > 1:
            value = encode(inventory, members=len(firsts))
            with suppress(AgentError):  # if the values are full, rank 0 misses it
                values.set(f"{self.key}/held/{self._world.rank}", value)
        start: dict[str, Any] = {}
        if self._world.rank == 0:
            inventories = [inventory] if len(firsts) == 1 else self._inventories(values, firsts)
            start = _start(inventories, find_stored)
        if self._world.size > 1:
            if self._world.rank == 0:
                _publish(f"{self.key}/start", start)
            start = json.loads(values.wait(f"{self.key}/start")[0])
        addresses = start["addresses"]
        self.movable = bool(addresses) and all(addresses)
        self.usable = self.movable or len(addresses) == 1
        if not self.usable and self._world.rank == 0:
            log.warning("checkpoints are only in the storage: a member gives none to the others")
        if addresses:
            nodes = [everyone[rank].node for rank in firsts] if everyone else [""]
            self._peer = _peer(self._position, nodes, addresses)
        if start["name"] and self._take(start):
            self.found = start["name"]
        return start["series"], start["stored"]

    def keep(self, name: str, part: int) -> None:
        """Note that all ranks have saved a checkpoint, and let the agent copy this part."""
        if self._first:
            with suppress(OSError):  # rank 0 has noted it
                self.folder.complete(name)
        if self._peer is not None:
            # A part that is not copied is missing only if this member is lost.
            self._agent.call(
                "state_keep",
                store=self._store,
                checkpoint=name,
                part=str(part),
                peer=self._peer,
            )

    @property
    def leaving(self) -> bool:
        """Whether this member leaves the job, so that its memory is lost."""
        return self._agent.leaving

    def _address(self) -> str | None:
        try:
            address: str | None = self._agent.call("state_folder").result().get("address")
        except AgentError as error:
            log.info("this member does not give its checkpoints in memory to others: %s", error)
            return None
        return address

    def _inventories(self, values: KeyValue, firsts: list[int]) -> list[Inventory]:
        keys = [f"{self.key}/held/{rank}" for rank in firsts]
        try:
            found = values.wait(*keys, timeout=_INVENTORY_SECONDS)
        except TimeoutError as error:
            log.warning("checkpoints in memory are not used in this world: %s", error)
            return []
        return [decode(value) for value in found]

    def _take(self, start: dict[str, Any]) -> bool:
        """Fetch the missing parts of a checkpoint; return whether all members have succeeded."""
        name: str = start["name"]
        if start["fetch"]:
            failed = AnyRank(f"{self.key}/fetch")(not (self._fetch(name, start)))
            if failed:
                log.warning(
                    "checkpoint %s is in memory, but not all of it could be fetched: this world "
                    "begins at the newest checkpoint of the storage",
                    name,
                )
                return False
        if self._first:
            self.folder.complete(name)
        return True

    def _fetch(self, name: str, start: dict[str, Any]) -> bool:
        """Get the missing parts; return whether all are here.

        Each comes from another member that gets it, too, or else from one that had it.
        """
        if not self._first:
            return True
        holders: list[int] = start["sources"]
        held = self.folder.held().get(name)
        missing = [part for part in range(len(holders)) if not held or part not in held.whole]
        filled = [part for part in missing if holders[part] != EMPTY]
        for first in range(0, len(filled), _FETCHES):
            near = {
                part: source(self._position, holders[part], start["addresses"])
                for part in filled[first : first + _FETCHES]
            }
            failed = self._get(name, near, start)
            again = {part: holders[part] for part in failed if near[part] != holders[part]}
            if len(again) == len(failed):
                failed = self._get(name, again, start)
            for reason in failed.values():
                log.warning("a part of checkpoint %s is not fetched: %s", name, reason)
                return False
        empty = [part for part in missing if holders[part] == EMPTY]
        try:
            self.folder.note_empty(name, empty, parts=len(holders))
        except OSError as error:
            log.warning("checkpoint %s is not fetched: %s", name, error)
        now = self.folder.held().get(name)
        return now is not None and len(now.whole) == len(holders)

    def _get(
        self, name: str, sources: Mapping[int, int], start: dict[str, Any]
    ) -> dict[int, BaseException]:
        """Fetch parts from members at these positions; return why some have failed."""
        fetches = {
            part: self._agent.call(
                "state_fetch",
                store=self._store,
                checkpoint=name,
                part=str(part),
                wait=position != start["sources"][part],
                **{"from": start["addresses"][position]},
            )
            for part, position in sources.items()
        }
        return {part: error for part, fetch in fetches.items() if (error := fetch.exception())}


def open_state(folder: str | os.PathLike[str], world: World) -> StateInMemory | None:
    """Return the checkpoints in memory of a storage folder; None if this job keeps none there."""
    agent = agent_connection()
    root = os.environ.get(names.ENV_STATE_FOLDER)
    if agent is None or not root:
        return None
    if world.size > MAX_CHECKPOINT_PARTS:
        log.warning(
            "%d processes: checkpoints are kept in memory for at most %d",
            world.size,
            MAX_CHECKPOINT_PARTS,
        )
        return None
    store = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    most_bytes = int(os.environ[names.ENV_STATE_BYTES])
    return StateInMemory(StateFolder(Path(root), store, most_bytes=most_bytes), store, agent, world)


def _start(
    inventories: list[Inventory], find_stored: Callable[[Iterable[str]], tuple[int, str]]
) -> dict[str, Any]:
    """Return rank 0's choice, which it publishes."""
    known = {name for inventory in inventories for name in inventory.checkpoints}
    series, stored = find_stored(known)
    choice = newest(inventories, after=stored) or Choice("", (), fetch=False)
    lost = max(known, default="")
    if lost > max(choice.name, stored):
        log.warning("checkpoint %s was in memory; the present members do not have all of it", lost)
    return {
        "series": series,
        "stored": stored,
        "name": choice.name,
        "sources": choice.sources,
        "fetch": choice.fetch,
        "addresses": [inventory.address for inventory in inventories],
    }


def _publish(key: str, start: dict[str, Any]) -> None:
    """Publish rank 0's choice; without checkpoints in memory if the values are too full for it."""
    values = KeyValue()
    try:
        values.set(key, json.dumps(start).encode())
    except AgentError as error:
        log.warning("checkpoints in memory are not used in this world: %s", error)
        values.set(key, json.dumps({**start, "name": "", "addresses": []}).encode())


def _peer(position: int, nodes: list[str], addresses: list[str | None]) -> str | None:
    """Return the address of the next member on another node, else of the next member."""
    others = [*range(position + 1, len(nodes)), *range(position)]
    elsewhere = [other for other in others if nodes[other] != nodes[position]]
    return addresses[(elsewhere or others)[0]] if others else None
