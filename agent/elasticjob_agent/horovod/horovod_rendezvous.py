"""Horovod's rendezvous for the processes of this pod, as its elastic driver would serve it.

The master decides.
    GET /rank_and_size/<host>:<local rank>      the place in the next world; waits until all who belong to it have asked
    PUT /worker_addresses/<host>:<local rank>   where the process takes notifications
    PUT, GET, DELETE /<any other>/<key>         the values with which the processes of a world connect to each other

A process that has been started reads its first place from its environment. Its first PUT of a value
therefore asks for its place, and waits as GET does: the others come when this process is there, and
none of them waits for its imports. The processes of a pod ask together: the master is asked when
the last of them has come.
"""

from __future__ import annotations

import asyncio
import sys
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
from elasticjob_agent.proxy.master_call import (
    CALL_TIMEOUT_SECONDS,
    RETRIED_CODES,
    RETRY_PAUSE_SECONDS,
)

WAIT_SECONDS = 8.0
"""How long the master may hold one request: less than `CALL_TIMEOUT_SECONDS`."""
NOTIFY_SECONDS = 1.0
"""Time between two notifications: a process that re-initialises Horovod forgets those that have
come meanwhile.
"""
_REMOVED = ",".join(["-1"] * 6).encode()
_MOST_VALUES = 4096


class HorovodRendezvous:
    """Serves the processes of one agent, those of one start after those of another."""

    def __init__(
        self, channel: grpc.aio.Channel, pod_uid: str, on_joined: Callable[[int], None]
    ) -> None:
        """Ask the master over a channel, and report to it by `on_joined` which world the process has entered."""
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
        """Of the latest world in which the present processes have got their places; 0: none."""
        self.removed = False
        """The present processes have been told that they belong to no later world, so they end."""

    async def open(self) -> None:
        """Start serving."""
        self._port = await self._http.open()

    async def close(self) -> None:
        """Stop serving."""
        self.processes_ended()
        await self._http.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def environment(self, container: Mapping[str, str], address: str) -> dict[str, str]:
        """Return what a process needs besides what the master says about its place."""
        found = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self._port),
            **{name: value for name, value in DEFAULTS.items() if name not in container},
        }
        interface = _interface_of(address)
        if interface and "HOROVOD_GLOO_IFACE" not in container:
            found["HOROVOD_GLOO_IFACE"] = interface
        # Else Horovod's Python client would ask a proxy, if there is one, for 127.0.0.1.
        no_proxy = container.get("no_proxy") or container.get("NO_PROXY")
        found["no_proxy"] = found["NO_PROXY"] = f"{no_proxy},127.0.0.1" if no_proxy else "127.0.0.1"
        return found

    def begin_processes(self, process_round: int, first_rank: int, count: int) -> None:
        """Expect so many processes, which are started for the world of a round with ranks from the first one on."""
        self.processes_ended()
        self._process_round = process_round
        self.removed = False
        self._first_rank = first_rank
        self._count = count

    def processes_ended(self) -> None:
        """Forget the present processes, and stop asking for them."""
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
        """Tell the processes that the world of a round is due, again and again until one asks for its place.

        When one asks already they are not told: they would learn of it in that world, and leave it.
        """
        if self.joined_round and self.joined_round < round_ and not self._asking:
            self._stop_notifying()
            self._notifier = self._spawn(self._notify(round_))

    def master_connected(self) -> None:
        """Put the values again: a master that has restarted does not have them."""
        if self._values:
            self._spawn(self._put_again(self.joined_round, dict(self._values)))

    # --- requests
    # ---------------------------------------------------------------------------------------------------

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
        """Return rank, size, local and cross ones of the next world, or that there is none for this process."""
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
            sys.stderr.write(
                f"elasticjob-agent: the process cannot be told of other worlds: {error}\n"
            )
            return Answer(400)
        return Answer()

    async def _put(self, request: Request) -> Answer:
        if not self.joined_round:
            rank = request.key.removeprefix(
                "rank_"
            )  # the first value of a process: Gloo's, of its rank in the world
            local_rank = int(rank) - self._first_rank if rank.isascii() and rank.isdigit() else -1
            if (
                request.scope != "global"
                or not 0 <= local_rank < self._count
                or not await self._join(local_rank)
            ):
                return Answer(503)
        key = f"{request.scope}/{request.key}"
        round_ = self.joined_round
        if len(self._values) < _MOST_VALUES:
            self._values[key] = request.body
        return await self._put_value(round_, key, request.body)

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
    # -------------------------------------------------------------------------------------------------

    async def _join(self, local_rank: int) -> bool:
        """Wait for a process' place in a world after the one that it has left.

        Return whether it has one.
        """
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
                    sys.stderr.write(
                        f"elasticjob-agent: no place for this process: {error.details()}\n"
                    )
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
        self.joined_round, self._slots, self._values = place.round, list(place.slots), {}
        self._on_joined(place.round)
        place_found.set_result(True)

    async def _forward(self, call: Callable[[], Any]) -> Answer:
        """Return a master's answer.

        Horovod asks again for a value that is not there yet, until its own time-out.
        """
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
            for port in list(
                self._notification_ports.values()
            ):  # a process registers when it calls hvd.elastic.run
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
    """Return the network interface with an IP address.

    Empty: there is none, so Gloo resolves the host's name.
    """
    if address.startswith("127."):
        return "lo"
    interfaces = psutil.net_if_addrs().items()
    return next(
        (name for name, found in interfaces if any(each.address == address for each in found)), ""
    )
