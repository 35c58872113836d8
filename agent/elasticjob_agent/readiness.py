"""Serves the port that the pod's readiness probe connects to.

It opens when the master has accepted the agent. It stays open while the master is disconnected, so
that a member that trains does not become unready when the master restarts. Other agents of the job
measure their connection to this one through it.
"""

from __future__ import annotations

import asyncio
import sys

from elasticjob_api import names

from elasticjob_agent.pairs import PairServer


class Readiness:
    """Accepts the probe's connections, and those of agents that measure."""

    def __init__(self, address: str, token: str | None) -> None:
        """Prepare to listen on this pod's address, for agents that know the job's token."""
        self._address = address
        self._token = token
        self._server: asyncio.Server | None = None
        self._announced = False

    async def announce(self) -> None:
        """Listen from now on; further calls do nothing. A failure is only logged."""
        if self._announced:
            return
        self._announced = True
        try:
            self._server = await asyncio.start_server(
                PairServer(self._token).serve, self._address, names.AGENT_READY_PORT
            )
        except OSError as error:
            sys.stderr.write(
                f"elasticjob-agent: cannot open the readiness port: {error.strerror or error}\n"
            )

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
