"""The port that tells the node that this member belongs to its job: the pod is Ready from then on.

It opens when the master has accepted the agent, and stays open while the master is away: a member that trains does not
become unready for want of a master.
"""

from __future__ import annotations

import asyncio
import sys

from elasticjob_api import names


class Readiness:
    """Takes the probe's connections, and closes them."""

    def __init__(self, address: str) -> None:
        """Prepare to listen on this pod's address."""
        self._address = address
        self._server: asyncio.Server | None = None
        self._announced = False

    async def announce(self) -> None:
        """Listen from now on; once is enough. A port that cannot be had is told, and the training goes on without."""
        if self._announced:
            return
        self._announced = True
        try:
            self._server = await asyncio.start_server(_take, self._address, names.AGENT_READY_PORT)
        except OSError as error:
            sys.stderr.write(f"elasticjob-agent: readiness cannot be told: {error.strerror or error}\n")

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()


def _take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
