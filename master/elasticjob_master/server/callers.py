"""The clients of the gRPC server: their connections, and what their open calls hold."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import grpc
from elasticjob_api.refusals import LimitReached

from elasticjob_master.core.connection_limits import (
    REQUEST_COPIES,
    Call,
    HeldCalls,
    Holder,
    Kind,
    Peer,
)
from elasticjob_master.server.services.calls import Behaviour

_HANDLERS: Mapping[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
"""The keys say whether the requests are a stream, and whether the answers are."""

KindOf = Callable[[Peer], Kind]
Serialize = Callable[[Any], bytes]


class Callers:
    """Records the clients of gRPC connections that have shown a token, and counts their calls."""

    def __init__(self, members: Callable[[], int]) -> None:
        self._callers: dict[str, Peer | None] = {}
        """The clients by their names in gRPC. A name is parsed later (None), to keep calls fast."""
        self._streams: dict[str, list[str]] = {}
        """The UIDs of the members whose agents' streams are open, by the agents' connections."""
        self.held = HeldCalls(members)

    def kinds(self) -> KindOf:
        """Return a function that classifies clients, as of now."""
        for text in [text for text, peer in self._callers.items() if peer is None]:
            self._callers[text] = peer_of(text)
        callers = set(self._callers.values())
        agents = {self._callers.get(text) for text in self._streams}
        hoarders = set(map(peer_of, self.held.connections_to_close()))

        def kind_of(peer: Peer) -> Kind:
            if peer in agents:
                return "agent"
            if peer in hoarders:
                return "hoarder"
            if peer in callers:
                return "caller"
            return "stranger"

        return kind_of

    def forget_all_but(self, present: set[Peer]) -> None:
        """Forget the clients whose connections are closed."""
        self._callers = {
            text: peer for text, peer in self._callers.items() if peer is None or peer in present
        }

    @contextmanager
    def agent(self, context: Any, uid: str) -> Iterator[None]:
        """Count a client as the agent of a member, and the call of its stream no longer."""
        context.stop_counting()
        peer = context.peer()
        self._streams.setdefault(peer, []).append(uid)
        try:
            yield
        finally:
            self._streams[peer].remove(uid)
            if not self._streams[peer]:
                del self._streams[peer]

    def is_agent_of(self, uid: str, peer: str) -> bool:
        """Return whether the stream of a member's agent is open on a client's connection."""
        return uid in self._streams.get(peer, ())

    def noting(self, handler: Any, behave: Behaviour, holder: Holder) -> Any:
        """Return a handler of the same kind that records its callers and what their calls hold.

        `behave` answers the calls. It decodes the request itself, unless requests are a stream.
        `holder` is what the token makes of a client that is no agent.
        """
        held = self.held
        streams = handler.response_streaming
        write: Serialize = handler.response_serializer or _unchanged

        async def answer(request: Any, context: Any) -> Any:
            peer = context.peer()
            if holder != "stranger":
                self._callers.setdefault(peer)
            call = held.begin("agent" if peer in self._streams else holder, peer)
            context.add_done_callback(lambda _context: held.end(call))
            try:
                held.hold(call, REQUEST_COPIES * len(request) if isinstance(request, bytes) else 0)
                if streams:
                    return await behave(request, _CountedWrites(context, held, call, write))
                data = write(await behave(request, context))
                held.hold(call, len(data))
            except LimitReached as error:
                return await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            return data

        make = _HANDLERS[handler.request_streaming, streams]
        return make(answer, handler.request_deserializer if handler.request_streaming else None)


class _CountedWrites:
    """The context of a call, which counts the message that is being written."""

    def __init__(self, context: Any, held: HeldCalls, call: Call, write: Serialize) -> None:
        self._context = context
        self._held = held
        self._call = call
        self._write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def stop_counting(self) -> None:
        self._held.end(self._call)

    async def write(self, message: Any) -> None:
        data = self._write(message)
        self._held.hold(self._call, len(data))
        await self._context.write(data)
        self._held.release(self._call, len(data))


def _unchanged(data: bytes) -> bytes:
    return data


def peer_of(text: str) -> Peer:
    """Parse a client's name in gRPC, such as `ipv4:10.0.0.1:80` or `ipv6:%5B::1%5D:80`."""
    address, _, port = unquote(text).partition(":")[2].rpartition(":")
    return normalized(address.strip("[]"), int(port) if port.isdecimal() else 0)


def normalized(address: str, port: int) -> Peer:
    """Return address and port, with an IPv4-mapped IPv6 address as IPv4."""
    with suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(parsed, "ipv4_mapped", None)
        return str(mapped or parsed), port
    return address, port
