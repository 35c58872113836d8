"""Notifies a Horovod process of a new world, in the protocol of Horovod's elastic driver.

The process serves a port. A message to it is an HMAC-SHA256, a length (32 bits, the machine's byte
order) and a pickle. The process registers the key and the port by a pickle. That pickle is not
trusted: it may not name a class or function.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import io
import pickle
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

_ADDED = 2
"""The kind of change of the hosts: after "removed" alone, Horovod would not send the state of
rank 0 to the others.
"""
_ANSWER_SECONDS = 5.0
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class NotificationPort:
    """The port at which a process receives notifications, and the key that it checks them with."""

    port: int
    key: bytes


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


def parse(registration: bytes) -> NotificationPort:
    """Return the port and the key that a process has registered; raises ValueError otherwise."""
    try:
        addresses, key = _PlainUnpickler(
            io.BytesIO(base64.b64decode(registration, validate=True))
        ).load()
        port = next(iter(addresses.values()))[0][1]
    except (pickle.UnpicklingError, binascii.Error) as error:
        raise ValueError(f"no registration of Horovod's: {error}") from error
    except (TypeError, AttributeError, LookupError, StopIteration, EOFError) as error:
        raise ValueError(f"no registration of Horovod's: {error!r}") from error
    if not (isinstance(port, int) and 0 < port < 65536 and isinstance(key, bytes)):
        raise ValueError("no registration of Horovod's: it has no port, or no key of bytes")
    return NotificationPort(port, key)


def message(key: bytes, timestamp: int) -> bytes:
    """Return the message that the hosts have changed; Horovod ignores an older timestamp."""
    # The class is Horovod's, so its pickle is written out: the class, its arguments, and the call.
    called = "chorovod.runner.elastic.worker\nHostsUpdatedRequest\n"
    body = f"{called}(I{timestamp}\nI{_ADDED}\ntR.".encode()
    return hmac.digest(key, body, "sha256") + struct.pack("i", len(body)) + body


async def notify(target: NotificationPort, timestamp: int) -> bool:
    """Send the message; return whether the process has confirmed it."""
    writer: Any = None
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            writer.write(message(target.key, timestamp))
            await reader.readexactly(_DIGEST_BYTES)  # any answer confirms
            return True
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    finally:
        if writer is not None:
            writer.close()
