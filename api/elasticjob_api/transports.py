"""Closes connections at once.

Every package that holds connections aborts them here, since Python's own call fails for some.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


def abort(transport: asyncio.WriteTransport) -> None:
    """Close a connection without sending what is buffered; do nothing if it is closed already.

    In Python 3.11.2 the second `close()` of a TLS transport drops its protocol, also when the
    connection is lost, and `abort()` then raises AttributeError.
    """
    with suppress(AttributeError):
        transport.abort()
