"""Copies parts of checkpoints between the agents of a job, over gRPC with mutual TLS.

All agents of a job have the same certificate and key, which show that a peer belongs to the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.v1 import state_pb2 as pb
from elasticjob_api.v1.state_pb2_grpc import (
    StateServiceServicer,
    StateServiceStub,
    add_StateServiceServicer_to_server,
)

from elasticjob_agent.state.folder import CHUNK_BYTES, StateFolder
from elasticjob_agent.state.parts import MAX_MANIFEST_BYTES, Manifest, PartName, manifest, part_name

PROGRESS_SECONDS = 30.0
"""A transfer ends if nothing moves for this time."""
MAX_TRANSFERS = 8
"""Transfers that one agent serves at a time; others wait."""
MAX_CALLS = 512
_TURN_SECONDS = 5.0
EXPECTED_SECONDS = 10.0
"""An agent that is asked for a part begins to get it itself within this time, or refuses."""
_POLL_SECONDS = 0.1
T = TypeVar("T")
_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.max_receive_message_length", CHUNK_BYTES + MAX_MANIFEST_BYTES),
    ("grpc.max_send_message_length", CHUNK_BYTES + MAX_MANIFEST_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.ssl_target_name_override", names.TLS_PEER_NAME),
]


@dataclass(frozen=True)
class Identity:
    """Shows that an agent belongs to the job: its authority's certificate and the agents' pair."""

    authority: bytes
    pair: bytes


class StateServer(StateServiceServicer):
    """Serves one agent's parts to the job's other agents, and takes theirs."""

    def __init__(self, folder: StateFolder, identity: Identity, address: str) -> None:
        """Serve a folder at an address, once it is opened."""
        self._folder = folder
        self._identity = identity
        self._address = address
        self._turns = asyncio.Semaphore(MAX_TRANSFERS)
        self._expected: set[tuple[PartName, int]] = set()
        self._server: grpc.aio.Server | None = None

    async def open(self) -> str:
        """Start serving; return the address with a free port.

        Raises RuntimeError if the address or the identity cannot be used.
        """
        pair = self._identity.pair
        credentials = grpc.ssl_server_credentials(
            [(pair, pair)], self._identity.authority, require_client_auth=True
        )
        options = [*_OPTIONS, ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        add_StateServiceServicer_to_server(self, server)
        port = server.add_secure_port(host_port(self._address, 0), credentials)
        await server.start()
        self._server = server
        return host_port(self._address, port)

    async def close(self) -> None:
        """Stop serving, and end all transfers."""
        if self._server is not None:
            await self._server.stop(None)

    # Unlike a generator, a coroutine that writes notices when the other side does not read.
    async def Fetch(self, request: pb.FetchPartRequest, context: Any) -> None:  # type: ignore[override]
        """Return one part."""
        try:
            name = _name(request.name)
            if request.round:
                await self._wait_for(name, request.round, context)
            await self._take_turn(context)
            try:
                for chunk in _chunks(self._folder, name):
                    await _soon(context.write(chunk))
            finally:
                self._turns.release()
        except (OSError, ValueError) as error:
            await _refuse(context, error)

    async def Send(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        """Take one part."""
        async with self._turns:
            try:
                stream = aiter(request_iterator)
                name, content, complete = await _description(stream)
                if self._folder.has(name):
                    await _soon(context.write(pb.SendPartResponse()))
                else:
                    with self._folder.receive(name, content, copy=True) as incoming:
                        await _soon(context.write(pb.SendPartResponse(wanted=True)))
                        async for data in _data(stream):
                            incoming.write(data)
                if complete:
                    self._folder.note_complete(name)
            except (OSError, ValueError) as error:
                await _refuse(context, error)

    @contextmanager
    def expecting(self, name: PartName, round_: int) -> Iterator[None]:
        """Let the other members of a world wait for a part that this one gets meanwhile."""
        self._expected.add((name, round_))
        try:
            yield
        finally:
            self._expected.discard((name, round_))

    async def _wait_for(self, name: PartName, round_: int, context: Any) -> None:
        """Wait while this agent gets a part for a world, and let the other side know of the wait.

        In one world no two members wait for each other. An earlier one has another order, so what
        is expected for it does not count.
        """
        now = asyncio.get_running_loop().time
        end = now() + EXPECTED_SECONDS
        while not self._folder.has(name):
            if (name, round_) in self._expected:
                end = now() + EXPECTED_SECONDS
            elif now() >= end:
                return
            await _soon(context.write(pb.PartChunk(data=b"")))
            await asyncio.sleep(_POLL_SECONDS)

    async def _take_turn(self, context: Any) -> None:
        """Wait for the transfers before this one, and let the other side know of the wait."""
        while True:
            try:
                async with asyncio.timeout(_TURN_SECONDS):
                    await self._turns.acquire()
                    return
            except TimeoutError:
                await _soon(context.write(pb.PartChunk(data=b"")))


async def fetch(
    address: str, name: PartName, folder: StateFolder, identity: Identity, *, round_: int = 0
) -> None:
    """Fetch one part from another agent; raises ValueError if it has sent something else.

    An agent that gets the part itself, for the world of the round, is waited for.

    Raises OSError if the agent cannot be reached, has no such part, or nothing moved for a while.
    """
    async with _peer(address, identity) as stub:
        call = stub.Fetch(pb.FetchPartRequest(name=pb.PartName(**name._asdict()), round=round_))
        stream = aiter(call)
        described, content, complete = await _description(stream)
        if described != name:
            raise ValueError("the agent has sent another part")
        with folder.receive(name, content, copy=False) as incoming:
            async for data in _data(stream):
                incoming.write(data)
        if complete:
            folder.note_complete(name)


async def send(address: str, name: PartName, folder: StateFolder, identity: Identity) -> None:
    """Give one part to another agent, unless it has it; raises ValueError if it is damaged here.

    Raises OSError if the agent cannot be reached, refuses the part, or nothing moved for a while.
    """
    async with _peer(address, identity) as stub:
        call = stub.Send()
        chunks = _chunks(folder, name)
        await _soon(call.write(next(chunks)))
        answer = await _soon(call.read())
        if answer is not grpc.aio.EOF and answer.wanted:
            for chunk in chunks:
                await _soon(call.write(chunk))
        await _soon(call.done_writing())
        await _soon(call.read())


@asynccontextmanager
async def _peer(address: str, identity: Identity) -> AsyncIterator[Any]:
    """Connect to another agent, and raise errors of gRPC as OSError."""
    credentials = grpc.ssl_channel_credentials(identity.authority, identity.pair, identity.pair)
    async with grpc.aio.secure_channel(address, credentials, options=_OPTIONS) as channel:
        try:
            yield StateServiceStub(channel)
        except grpc.aio.AioRpcError as error:
            raise OSError(f"{error.code().name}: {error.details()}") from error
        except asyncio.InvalidStateError as error:
            raise OSError("the agent has ended the transfer") from error


def _chunks(folder: StateFolder, name: PartName) -> Iterator[pb.PartChunk]:
    content = folder.manifest(name)
    yield pb.PartChunk(
        description=pb.PartDescription(
            name=pb.PartName(**name._asdict()),
            manifest=content.encode(),
            complete=folder.is_complete(name),
        )
    )
    for data in folder.chunks(name, content):
        yield pb.PartChunk(data=data)


async def _description(stream: Any) -> tuple[PartName, Manifest, bool]:
    async for chunk in _progress(stream):
        if chunk.HasField("description"):
            name = _name(chunk.description.name)
            return name, manifest(chunk.description.manifest, name), chunk.description.complete
        if chunk.data:
            break
    raise ValueError("the part has no description")


async def _data(stream: Any) -> AsyncIterator[bytes]:
    async for chunk in _progress(stream):
        yield chunk.data


async def _progress(stream: Any) -> AsyncIterator[pb.PartChunk]:
    """Yield the chunks of a stream; raises TimeoutError if none came for `PROGRESS_SECONDS`."""
    while True:
        try:
            yield await _soon(anext(stream))
        except StopAsyncIteration:
            return


async def _soon(moved: Awaitable[T]) -> T:
    async with asyncio.timeout(PROGRESS_SECONDS):
        return await moved


def _name(name: pb.PartName) -> PartName:
    return part_name(name.store, name.checkpoint, name.part)


async def _refuse(context: Any, error: Exception) -> NoReturn:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error)[:500])
    raise AssertionError("abort raises")
