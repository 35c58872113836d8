"""A minimal gRPC client.

It writes HTTP/2 frames itself, so that thousands of clients leave a core to the server. It has only
what a client of our own master needs: literal header fields, a receive window that is never used
up or always closed, and no reading of response headers beyond whether they end the call.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from typing import cast

from elasticjob_api.transports import abort

_DATA = 0
_HEADERS = 1
_RESET = 3
_SETTINGS = 4
_PING = 6
_GOAWAY = 7
_WINDOW = 8
_END_STREAM = _ACK = 0x1
_END_HEADERS = 0x4
_WIDEST = 2**31 - 1
_FIRST_WINDOW = 65_535
_INITIAL_WINDOW_SIZE = 4
_ANSWER_SECONDS = 60.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

OnMessage = Callable[[bytes | None], None]
"""Called with each message of a call; None is the end of the call."""


class ConnectionBroken(Exception):
    """The server has refused a call or closed the connection."""


class Connection(asyncio.Protocol):
    """One connection, as an agent has one."""

    def __init__(self, token: str | None, *, reads: bool = True) -> None:
        """Prepare a connection. Unless `reads`, the server may send no byte of an answer."""
        self._token = token
        self._reads = reads
        self._buffer = bytearray()
        self._calls: dict[int, tuple[OnMessage, bytearray]] = {}
        self._next_stream = 1
        self._window = _FIRST_WINDOW
        self._transport: asyncio.Transport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and the settings."""
        self._transport = cast(asyncio.Transport, transport)
        settings = struct.pack("!HI", _INITIAL_WINDOW_SIZE, _WIDEST if self._reads else 0)
        wider = struct.pack("!I", _WIDEST - _FIRST_WINDOW)
        self.write(_PREFACE + frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW, 0, 0, wider))

    def connection_lost(self, exc: Exception | None) -> None:
        """End every call that is under way."""
        self.lost = True
        calls = self._calls
        self._calls = {}
        for on_message, _ in calls.values():
            on_message(None)

    @property
    def open_calls(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self._calls)

    def takes(self, message: bytes) -> bool:
        """Return whether the server's window takes a message now."""
        return self._window >= len(message) + 5

    def write(self, data: bytes) -> None:
        """Send bytes."""
        assert self._transport is not None
        self._transport.write(data)

    def call(self, method: str, on_message: OnMessage) -> int:
        """Begin a call; return its stream."""
        stream = self._next_stream
        self._next_stream = self._next_stream + 2
        self._calls[stream] = (on_message, bytearray())
        fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":path", method),
            (":authority", "elasticjob-master"),
        ]
        fields += [("te", "trailers"), ("content-type", "application/grpc")]
        if self._token is not None:
            fields.append(("authorization", f"Bearer {self._token}"))
        block = b"".join(b"\x00" + _string(name) + _string(value) for name, value in fields)
        self.write(frame(_HEADERS, _END_HEADERS, stream, block))
        return stream

    def send(self, stream: int, message: bytes, *, last: bool = False) -> None:
        """Send a message of a call."""
        data = message_frame(stream, message, last=last)
        self._window -= len(message) + 5
        if self._window < 0:
            raise ConnectionBroken(
                "more was sent than the server's window takes; it does not keep up"
            )
        self.write(data)

    async def ask(self, method: str, message: bytes) -> bytes:
        """Make a unary call. Raises `ConnectionBroken` when it ends without an answer."""
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.send(
            self.call(
                method, lambda answered: None if answer.done() else answer.set_result(answered)
            ),
            message,
            last=True,
        )
        async with asyncio.timeout(_ANSWER_SECONDS):
            response = await answer
        if response is None:
            raise ConnectionBroken(f"{method} was refused")
        return response

    def close(self) -> None:
        """Close the connection without ending the calls."""
        if self._transport is not None:
            abort(self._transport)

    def data_received(self, data: bytes) -> None:
        """Read the frames that the server sends."""
        buffer = self._buffer
        at = 0
        buffer += data
        while len(buffer) - at >= 9:
            length = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at - 9 < length:
                break
            kind = buffer[at + 3]
            flags = buffer[at + 4]
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
            self._on_frame(kind, flags, stream, bytes(buffer[at + 9 : at + 9 + length]))
            at += 9 + length
        del buffer[:at]

    def _on_frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _DATA:
            self._on_data(stream, body)
        elif kind == _SETTINGS and not flags & _ACK:
            self.write(frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.write(frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW and stream == 0:
            self._window += int.from_bytes(body, "big")
        elif kind == _GOAWAY:
            self.close()
        if (kind in (_DATA, _HEADERS) and flags & _END_STREAM) or kind == _RESET:
            on_message, _ = self._calls.pop(stream, (None, None))
            if on_message is not None:
                on_message(None)

    def _on_data(self, stream: int, body: bytes) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        on_message, buffer = call
        buffer += body
        while len(buffer) >= 5:
            length = int.from_bytes(buffer[1:5], "big")
            if len(buffer) - 5 < length:
                return
            on_message(bytes(buffer[5 : 5 + length]))
            del buffer[: 5 + length]


async def connect(
    port: int, *, tls: ssl.SSLContext | None, token: str | None, reads: bool = True
) -> Connection:
    """Open a connection to a server on this machine."""
    loop = asyncio.get_running_loop()
    name = "elasticjob-master" if tls is not None else None
    _, connection = await loop.create_connection(
        lambda: Connection(token, reads=reads), "127.0.0.1", port, ssl=tls, server_hostname=name
    )
    return connection


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def message_frame(stream: int, message: bytes, *, last: bool = False) -> bytes:
    """Return a gRPC message in one frame."""
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return frame(_DATA, _END_STREAM if last else 0, stream, body)


def _string(text: str) -> bytes:
    """Return an HPACK string literal, not compressed."""
    data = text.encode("ascii")
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest = len(data) - 127
    prefix = bytearray((127,))
    while rest >= 128:
        prefix.append(rest % 128 + 128)
        rest //= 128
    return bytes((*prefix, rest)) + data
