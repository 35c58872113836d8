"""Serves the port that the pod's readiness probe connects to.

It opens when the master has accepted the agent. It stays open while the master is disconnected, so
that a member that trains does not become unready when the master restarts.
"""

from __future__ import annotations

import asyncio
import sys

from elasticjob_api import names


class Readiness:
    """Accepts the probe's connections, and closes them."""

    def __init__(self, address: str) -> None:
        """Prepare to listen on this pod's address."""
        self._address = address
        self._server: asyncio.Server | None = None
        self._announced = False

    async def announce(self) -> None:
        """Listen from now on; further calls do nothing. A failure is only logged."""
        if self._announced:
            return
        self._announced = True
        try:
            self._server = await asyncio.start_server(
                _close_at_once, self._address, names.AGENT_READY_PORT
            )
        except OSError as error:
            sys.stderr.write(
                f"elasticjob-agent: cannot open the readiness port: {error.strerror or error}\n"
            )

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()


def _close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
