"""Serves Horovod's rendezvous to the processes of this pod, in place of its elastic driver.

The master decides the places.
    GET /rank_and_size/<host>:<local rank>      the place in the next world, when it has formed
    PUT /worker_addresses/<host>:<local rank>   the port for notifications
    PUT, GET, DELETE /<any other>/<key>         the values by which the processes connect

A new process reads its first place from its environment. Its first PUT of a value therefore joins
the world and waits as GET does, so the other processes do not wait for its imports. The agent asks
the master when all processes of the pod have asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import grpc
import grpc.aio
import psutil
from elasticjob_api.frameworks.horovod import DEFAULTS
from elasticjob_api.v1 import horovod_pb2 as pb
from elasticjob_api.v1.horovod_pb2_grpc import HorovodServiceStub

from elasticjob_agent.horovod import notification
from elasticjob_agent.horovod.http import Answer, HttpServer, Request
from elasticjob_agent.log import say
from elasticjob_agent.proxy.master_call import (
    CALL_TIMEOUT_SECONDS,
    RETRIED_CODES,
    RETRY_PAUSE_SECONDS,
)

WAIT_SECONDS = 8.0
"""The longest time that the master holds one request: less than `CALL_TIMEOUT_SECONDS`."""
NOTIFY_SECONDS = 1.0
"""Time between two notifications. They are repeated because a process loses those that arrive
while it re-initialises Horovod.
"""
_REMOVED = ",".join(["-1"] * 6).encode()
_MOST_VALUES = 4096


class HorovodRendezvous:
    """Serves the training processes of one agent."""

    def __init__(
        self, channel: grpc.aio.Channel, pod_uid: str, on_joined: Callable[[int], None]
    ) -> None:
        """Call the master over a channel, and `on_joined` with the round of each joined world."""
        self._stub = HorovodServiceStub(channel)
        self._pod_uid = pod_uid
        self._on_joined = on_joined
        self._http = HttpServer(self._answer)
        self._port = 0
        self._process_round = 0
        self._slots: list[pb.Slot] = []
        self._values: dict[str, bytes] = {}
        self._first_rank = 0
        self._count = 1
        self._notification_ports: dict[str, notification.NotificationPort] = {}
        self._asking: set[int] = set()
        self._place_found: asyncio.Future[bool] | None = None
        self._joiner: asyncio.Task[None] | None = None
        self._notifier: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.joined_round = 0
        """The round of the latest world that the present processes have joined, or 0."""
        self.removed = False
        """The master has removed the present processes from later worlds, so they end."""

    async def open(self) -> None:
        """Start serving."""
        self._port = await self._http.open()

    async def close(self) -> None:
        """Stop serving."""
        self.processes_ended()
        await self._http.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def environment(self, container: Mapping[str, str], address: str) -> dict[str, str]:
        """Return the variables that a process needs beside those of its place."""
        found = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self._port),
            **{name: value for name, value in DEFAULTS.items() if name not in container},
        }
        interface = _interface_of(address)
        if interface and "HOROVOD_GLOO_IFACE" not in container:
            found["HOROVOD_GLOO_IFACE"] = interface
        # Otherwise Horovod's Python client would connect to 127.0.0.1 by a proxy.
        no_proxy = container.get("no_proxy") or container.get("NO_PROXY")
        found["no_proxy"] = ",".join(filter(None, (no_proxy, "127.0.0.1")))
        found["NO_PROXY"] = found["no_proxy"]
        return found

    def begin_processes(self, process_round: int, first_rank: int, count: int) -> None:
        """Expect `count` processes of the world of a round, with ranks from `first_rank` on."""
        self.processes_ended()
        self._process_round = process_round
        self.removed = False
        self._first_rank = first_rank
        self._count = count

    def processes_ended(self) -> None:
        """Forget the present processes, and cancel their requests."""
        self._http.drop_requests()
        self._stop_notifying()
        if self._joiner is not None:
            self._joiner.cancel()
        self._process_round = self.joined_round = 0
        self._slots = []
        self._values = {}
        self._notification_ports = {}
        self._asking = set()
        self._place_found = None
        self._joiner = None

    def announce(self, round_: int) -> None:
        """Notify the processes of the world of a round, repeatedly until one asks for its place.

        If one has asked already, none is notified: it would receive that in the new world and leave
        it.
        """
        if self.joined_round and self.joined_round < round_ and not self._asking:
            self._stop_notifying()
            self._notifier = self._spawn(self._notify(round_))

    def master_connected(self) -> None:
        """Put the values again: a restarted master has lost them."""
        if self._values:
            self._spawn(self._put_again(self.joined_round, dict(self._values)))

    # --- requests

    async def _answer(self, request: Request) -> Answer:
        match request.method, request.scope:
            case "GET", "rank_and_size":
                return await self._place(request.key)
            case "PUT", "worker_addresses":
                return self._register(request)
            case "PUT", _:
                return await self._put(request)
            case "GET", _:
                return await self._get(request)
            case "DELETE", _:
                return await self._delete(request)
        return Answer(400)

    async def _place(self, key: str) -> Answer:
        """Return the ranks and sizes of the next world, or -1 for each to a removed process."""
        number = key.rpartition(":")[2]
        if not (number.isascii() and number.isdigit() and int(number) < self._count):
            return Answer(404)
        local_rank = int(number)
        if not await self._join(local_rank) or local_rank >= len(self._slots):
            return Answer(body=_REMOVED)
        slot = self._slots[local_rank]
        numbers = (
            slot.rank,
            slot.size,
            slot.local_rank,
            slot.local_size,
            slot.cross_rank,
            slot.cross_size,
        )
        return Answer(body=",".join(map(str, numbers)).encode())

    def _register(self, request: Request) -> Answer:
        try:
            if (
                request.key in self._notification_ports
                or len(self._notification_ports) < self._count
            ):
                self._notification_ports[request.key] = notification.parse(request.body)
        except ValueError as error:
            say(f"the process cannot be notified of other worlds: {error}")
            return Answer(400)
        return Answer()

    async def _put(self, request: Request) -> Answer:
        if not self.joined_round:
            local_rank = self._local_rank_of(request)
            if local_rank is None or not await self._join(local_rank):
                return Answer(503)
        key = f"{request.scope}/{request.key}"
        round_ = self.joined_round
        if len(self._values) < _MOST_VALUES:
            self._values[key] = request.body
        return await self._put_value(round_, key, request.body)

    def _local_rank_of(self, first_value: Request) -> int | None:
        """Return the local rank of the process that puts its first value: Gloo's, by its rank."""
        rank = first_value.key.removeprefix("rank_")
        if first_value.scope != "global" or not (rank.isascii() and rank.isdigit()):
            return None
        local_rank = int(rank) - self._first_rank
        return local_rank if 0 <= local_rank < self._count else None

    async def _get(self, request: Request) -> Answer:
        key = f"{request.scope}/{request.key}"
        get = pb.GetRequest(round=self.joined_round, key=key, wait_seconds=WAIT_SECONDS)
        return await self._forward(lambda: self._stub.Get(get, timeout=CALL_TIMEOUT_SECONDS))

    async def _delete(self, request: Request) -> Answer:
        key = f"{request.scope}/{request.key}"
        self._values.pop(key, None)
        delete = pb.DeleteRequest(round=self.joined_round, key=key)
        return await self._forward(lambda: self._stub.Delete(delete, timeout=CALL_TIMEOUT_SECONDS))

    # --- the master

    async def _join(self, local_rank: int) -> bool:
        """Wait for a process' place in the next world; return whether it has one."""
        if self._place_found is None:
            self._place_found = asyncio.get_running_loop().create_future()
        place_found = self._place_found
        self._asking.add(local_rank)
        self._stop_notifying()
        if len(self._asking) == self._count and self._joiner is None:
            self._joiner = self._spawn(self._ask_master(place_found))
        return await asyncio.shield(place_found)

    async def _ask_master(self, place_found: asyncio.Future[bool]) -> None:
        """Ask for the places of all processes, until the master answers."""
        request = pb.JoinRequest(
            pod_uid=self._pod_uid,
            process_round=self._process_round,
            left_round=self.joined_round,
            wait_seconds=WAIT_SECONDS,
        )
        place = None
        while place is None:
            try:
                place = await self._stub.Join(
                    request, timeout=CALL_TIMEOUT_SECONDS, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                if error.code() not in RETRIED_CODES:
                    say(f"no place for this process: {error.details()}")
                    break
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    await asyncio.sleep(RETRY_PAUSE_SECONDS)
        self._asking = set()
        self._place_found = None
        self._joiner = None
        if place is None or place.removed:
            self.removed = place is not None
            place_found.set_result(False)
            return
        self.joined_round = place.round
        self._slots = list(place.slots)
        self._values = {}
        self._on_joined(place.round)
        place_found.set_result(True)

    async def _forward(self, call: Callable[[], Any]) -> Answer:
        """Return a master's answer; Horovod repeats a GET of a missing value until its time-out."""
        while True:
            try:
                answer = await call()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    return Answer(404)
            else:
                return Answer(body=answer.value if isinstance(answer, pb.GetResponse) else b"")
            await asyncio.sleep(RETRY_PAUSE_SECONDS)

    async def _put_value(self, round_: int, key: str, value: bytes) -> Answer:
        put = pb.PutRequest(round=round_, key=key, value=value)
        return await self._forward(lambda: self._stub.Put(put, timeout=CALL_TIMEOUT_SECONDS))

    async def _put_again(self, round_: int, values: Mapping[str, bytes]) -> None:
        for key, value in values.items():
            await self._put_value(round_, key, value)

    async def _notify(self, round_: int) -> None:
        while True:
            # A process registers its port when it calls hvd.elastic.run.
            for port in list(self._notification_ports.values()):
                await notification.notify(port, round_)
            await asyncio.sleep(NOTIFY_SECONDS)

    def _stop_notifying(self) -> None:
        if self._notifier is not None:
            self._notifier.cancel()
            self._notifier = None

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _interface_of(address: str) -> str:
    """Return the network interface with an IP address; empty without one."""
    if address.startswith("127."):
        return "lo"
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    return ""  # Gloo resolves the host's name
