"""Answers the calls of the training process about checkpoints in memory.

state_folder {}                                   the folder, and the address for other members
state_keep {"store", "checkpoint", "part", "peer"}   the part is whole: copy it to a member
state_fetch {"store", "checkpoint", "part", "from", "wait"}
                                                  fetch a part from a member; with `wait` it may
                                                  still get it itself
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from elasticjob_api.limits import MAX_CHECKPOINT_PARTS

from elasticjob_agent.config import Config
from elasticjob_agent.log import say
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.shards import Caller, Request
from elasticjob_agent.state import peers
from elasticjob_agent.state.folder import StateFolder
from elasticjob_agent.state.parts import PartName, part_name

MAX_FETCHES = 4
"""Parts that are fetched at a time."""
_MAX_ADDRESS = 300
_ARRIVING_POLL_SECONDS = 0.1


class StateCalls:
    """The checkpoints in memory of one member: answers calls, and copies parts to other members."""

    def __init__(self, config: Config) -> None:
        """Serve the folder that the configuration names, if any, once it is opened."""
        self._root = config.state_folder
        self._folder: StateFolder | None = None
        self._identity = (
            peers.Identity(config.ca, config.peer_identity)
            if config.ca and config.peer_identity
            else None
        )
        self._most_bytes = config.state_bytes
        self._host = config.address
        self._server: peers.StateServer | None = None
        self._address: str | None = None
        self._fetches = asyncio.Semaphore(MAX_FETCHES)
        self._waiting: dict[tuple[str, str], tuple[PartName, str]] = {}
        self._wake = asyncio.Event()
        self._copying: asyncio.Task[None] | None = None
        self._failing = False
        self.handlers = {
            "state_folder": self._state_folder,
            "state_keep": self._keep,
            "state_fetch": self._fetch,
        }

    async def open(self) -> None:
        """Start serving the other members, if there is a folder."""
        if self._root is None:
            return
        if self._identity is None:
            say("checkpoints in memory are not copied to other members: the job has no key for it")
            return
        folder = StateFolder(Path(self._root), self._most_bytes)
        server = peers.StateServer(folder, self._identity, self._host)
        try:
            self._address = await server.open()
        except RuntimeError as error:
            say(f"checkpoints in memory are not copied to other members: {error}")
            return
        self._folder = folder
        self._server = server
        self._copying = asyncio.create_task(self._copy(folder, self._identity))

    async def close(self) -> None:
        """End all transfers."""
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.gather(self._copying, return_exceptions=True)
        if self._server is not None:
            await self._server.close()

    async def _state_folder(self, _request: Request, _caller: object) -> Request:
        return {"path": self._root and str(self._root), "address": self._address}

    async def _keep(self, request: Request, _caller: object) -> Request:
        """Copy a part in the background; a newer checkpoint's replaces one that still waits."""
        name = _name(request)
        if request["peer"] is not None and self._folder is not None:
            address = _text(request["peer"])
            key = (name.store, name.part)
            before = self._waiting.get(key, (name, address))[0]
            if before <= name and (
                key in self._waiting or len(self._waiting) < MAX_CHECKPOINT_PARTS
            ):
                self._waiting[key] = name, address
                self._wake.set()
        return {}

    async def _fetch(self, request: Request, caller: Caller) -> Request:
        name = _name(request)
        address = _text(request["from"])
        if self._folder is None or self._identity is None or self._server is None:
            raise CallError("this member cannot fetch from others")
        round_ = caller.world_round if request.get("wait") is True else 0
        with self._server.expecting(name, caller.world_round):
            async with self._fetches:
                while self._folder.is_arriving(name):  # noqa: ASYNC110 (rare)
                    await asyncio.sleep(_ARRIVING_POLL_SECONDS)
                if self._folder.has(name):
                    return {}
                try:
                    await peers.fetch(address, name, self._folder, self._identity, round_=round_)
                except (OSError, ValueError) as error:
                    raise CallError(f"part {name.part} from {address}: {_reason(error)}") from error
        return {}

    async def _copy(self, folder: StateFolder, identity: peers.Identity) -> None:
        """Copy the parts that wait, newest first."""
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            key = max(self._waiting, key=lambda each: self._waiting[each][0].checkpoint)
            name, address = self._waiting.pop(key)
            try:
                await peers.send(address, name, folder, identity)
                self._failing = False
            except (OSError, ValueError) as error:
                # The training process may have removed the part, as newer ones exist.
                if folder.has(name) and not self._failing:
                    self._failing = True
                    say(
                        f"{name.checkpoint} is not copied to the member at {address}: "
                        f"{_reason(error)}"
                    )


def _name(request: Request) -> PartName:
    return part_name(request["store"], request["checkpoint"], request["part"])


def _text(value: object) -> str:
    if not (isinstance(value, str) and 0 < len(value) <= _MAX_ADDRESS):
        raise ValueError(f"an address is host:port, not {value!r:.100}")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing moved for {peers.PROGRESS_SECONDS:.0f} s"
    return str(error)
