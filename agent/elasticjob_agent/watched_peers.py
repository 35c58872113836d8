"""Watches whether the nodes of other members answer. A node that vanishes closes no connection.

A connection to each watched member stays open, and the kernel asks the other one once a second
whether it is still there (TCP keepalive). That costs the agents nothing, and a member that is
frozen or has no CPU answers, too. The master decides what it means that a node does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Callable, Coroutine, Sequence

from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from elasticjob_agent import readiness

KEEPALIVE_SECONDS = 1
CONNECT_SECONDS = 1.0
CHECK_SECONDS = 0.6
"""Before a report the agent tries this long to connect once more."""
PROBE_SECONDS = 0.75
TRY_SECONDS = 0.4
SPREAD_SECONDS = 0.5
"""Those who watch one member do not ask at the same moment: one of them notices its end sooner."""
RECONNECT_SECONDS = 2.0
"""The pause after the other end has closed the connection, as earlier versions do at once."""
MAX_RETRY_SECONDS = 30.0
_SILENT = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)

Spawn = Callable[[str, Coroutine[None, None, None]], asyncio.Task[None]]


class WatchedPeers:
    """Keeps the connections that the master has asked for, and reports those that break."""

    def __init__(
        self, token: str | None, spawn: Spawn, send: Callable[[pb.AgentMessage], None]
    ) -> None:
        """Begin without any; `token` is the job's, and `spawn` begins work in the background."""
        self._token = token
        self._spawn = spawn
        self._send = send
        self._watches: dict[str, asyncio.Task[None]] = {}

    def watch(self, addresses: Sequence[str]) -> None:
        """Watch these members and no others."""
        for address in self._watches.keys() - set(addresses):
            self._watches.pop(address).cancel()
        for number, address in enumerate(addresses):
            if address not in self._watches:
                watch = self._watch(address, number * SPREAD_SECONDS)
                self._watches[address] = self._spawn("the watch of a member", watch)

    async def probe(self, request: pb.Probe) -> None:
        """Answer which of the addresses do not answer now."""
        addresses = list(request.addresses)
        answers = await asyncio.gather(*(_answers(each, PROBE_SECONDS) for each in addresses))
        unreached = [each for each, answer in zip(addresses, answers, strict=True) if not answer]
        self._send(pb.AgentMessage(probed=pb.Probed(number=request.number, unreached=unreached)))

    async def _watch(self, address: str, delay: float) -> None:
        """Stay connected to a member. Report when its node answers no more, if it ever has."""
        await asyncio.sleep(delay)
        connected = False
        pause = RECONNECT_SECONDS
        while True:
            began = time.monotonic()
            try:
                link = await _connect(address, CONNECT_SECONDS)
                if link is not None:
                    connected = True
                    pause = RECONNECT_SECONDS
                    await self._hold(link)
            except (ConnectionError, EOFError):
                # its node has refused or closed the connection, so it answers
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            if link is not None:
                began = time.monotonic() - KEEPALIVE_SECONDS
            if await _answers(address, CHECK_SECONDS):
                continue
            if connected:
                ago = int(1000 * (time.monotonic() - began))
                report = pb.Unreached(address=address, began_milliseconds_ago=ago)
                self._send(pb.AgentMessage(unreached=report))
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)

    async def _hold(self, link: socket.socket) -> None:
        """Keep a connection until its node does not answer. An `EOFError`: it has closed it."""
        reader, writer = await asyncio.open_connection(sock=link)
        try:
            await readiness.begin_watch(reader, writer, self._token)
            await reader.read()
        except OSError as error:
            if not _is_silence(error):
                raise
        else:
            raise EOFError
        finally:
            writer.close()


async def _answers(address: str, seconds: float) -> bool:
    """Return whether a node answers in this time, in which the agent connects more than once."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            link = await _connect(address, min(left, TRY_SECONDS))
        except ConnectionError:
            return True  # its kernel has refused
        if link is not None:
            link.close()
            return True
        await asyncio.sleep(0.05)
    return False


async def _connect(address: str, seconds: float) -> socket.socket | None:
    """Connect to a member's agent; None: its node does not answer.

    Raises:
        OSError: something else has failed; a `ConnectionError`: the node has refused.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    link = socket.socket(family, socket.SOCK_STREAM)
    try:
        link.setblocking(False)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * KEEPALIVE_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                target = (address, names.AGENT_READY_PORT)
                await asyncio.get_running_loop().sock_connect(link, target)
        except OSError as error:
            if not isinstance(error, TimeoutError) and not _is_silence(error):
                raise
            with contextlib.suppress(OSError):
                link.getpeername()
                return link  # it was connected in time, but this agent had no CPU
            link.close()
            return None
    except BaseException:
        link.close()
        raise
    return link


def _is_silence(error: OSError) -> bool:
    """Return whether an error says that a node has not answered."""
    return error.errno in _SILENT
