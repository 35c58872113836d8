"""Joins JAX's distributed system in one world after the other, in the same process."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.extend.backend
import numpy as np
from elasticjob_api.frameworks import jax as framework
from elasticjob_api.frameworks.peer import meeting_port
from jax._src.distributed import global_state as _state
from jax._src.lib import _jax
from jax.experimental import multihost_utils

from elasticjob._jax_meeting import Front, Relay, meet
from elasticjob._jax_state import Tree
from elasticjob._world_group import Connections, Meeting

_OLDEST = (0, 10)
_CONNECT_SECONDS = 60
"""For processes that have met."""

_NEVER_SECONDS = 10**7
"""The service does not look for lost processes: JAX would end the others."""

_DESTROY_SECONDS = 20.0
_ROW_BYTES = 512
"""An object up to this size is gathered by one collective."""

_LENGTH_BYTES = 8
_CHUNK_BYTES = 32 << 20


class Meetings:
    """Joins one world after the other, with Gloo's collectives."""

    errors: tuple[type[Exception], ...] = (RuntimeError, TimeoutError, ValueError)
    notices_ends = True

    def __init__(self, *, timeout: float) -> None:
        """Prepare; `timeout` is that of joining.

        Raises RuntimeError if JAX is too old, or does not compute on CPUs.
        """
        if jax.__version_info__[:2] < _OLDEST:
            raise RuntimeError(
                f"elasticjob.jax.worlds needs JAX 0.10 or later, and this is {jax.__version__}: "
                "install a newer one, or use onWorldChange: Restart"
            )
        if (platform := jax.default_backend()) != "cpu":
            raise RuntimeError(
                f"elasticjob.jax.worlds trains on CPUs only, and JAX's platform here is {platform}:"
                " use onWorldChange: Restart, or JAX_PLATFORMS=cpu"
            )
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self._timeout = timeout
        self._front: Front | None = None
        self._relay: Relay | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="elasticjob-"))

    def port(self, address: str) -> int:
        """Return the port at which processes meet at the pod with this address."""
        own = os.environ.get("JAX_COORDINATOR_ADDRESS", "").rpartition(":")[2]
        return meeting_port(address, framework.PORT, int(own or 0))

    def serve(self, address: str) -> None:
        """Let the processes of worlds meet at this one, if that is not done already."""
        if self._front is None:
            self._front = Front(address, self.port(address))

    def join(self, meeting: Meeting, address: str, interrupted: Callable[[], bool]) -> None:
        """Connect to all processes of a world, of whose rank 0 this is the address.

        Raises RuntimeError if the world has ended, or not all processes have come in time.
        """
        _clear()  # of what was computed before the first world
        service = self._folder / f"service-{meeting.round}"
        if meeting.rank == 0 and self._front is not None:
            self._front.open(meeting.round, service)
        target = (address, self.port(address))
        meet(meeting, target, interrupted, timeout=self._timeout)
        self._relay = Relay(self._folder / f"relay-{meeting.round}", target, meeting.round)
        if meeting.rank == 0:
            _state.service = _jax.get_distributed_runtime_service(
                f"unix:{service}",
                meeting.size,
                heartbeat_timeout=_NEVER_SECONDS,
                shutdown_timeout=1,
                recoverable=True,
            )
        _state.client = _jax.get_distributed_runtime_client(
            f"unix:{self._relay.path}",
            meeting.rank,
            init_timeout=_CONNECT_SECONDS,
            heartbeat_timeout=_NEVER_SECONDS,
            shutdown_timeout=1,
            shutdown_on_destruction=False,
        )
        _state.client.connect()
        _state.process_id = meeting.rank
        _state.num_processes = meeting.size
        self.gather(None)  # Gloo connects when the first collective runs
        meeting.connections.complete()

    def arrived(self, round_: int) -> int:
        """Return how many processes wait for the others in a world, at this process."""
        return self._front.arrived(round_) if self._front else 0

    def gather(self, mine: Any) -> list[Any]:
        """Return the objects of all ranks."""
        if jax.process_count() == 1:
            return [mine]
        data = pickle.dumps(mine)
        rows = _gather_rows(data, _ROW_BYTES)
        lengths = [int.from_bytes(row[:_LENGTH_BYTES], "big") for row in rows]
        if max(lengths) + _LENGTH_BYTES > _ROW_BYTES:
            # Few sizes, because JAX compiles for each.
            rows = _gather_rows(data, 1 << (max(lengths) + _LENGTH_BYTES).bit_length())
        return [
            pickle.loads(row[_LENGTH_BYTES : _LENGTH_BYTES + length])  # noqa: S301 (a rank's)
            for row, length in zip(rows, lengths, strict=True)
        ]

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""
        return bool(np.any(multihost_utils.process_allgather(np.array([mine]))))

    def part(self, meeting: Meeting) -> None:
        """Wait until all ranks have ended their collectives, or one has gone."""
        self.any_rank(False)

    def broadcast(self, tree: Tree | None, source: int) -> Tree:
        """Return the committed state of the source, in all ranks. Arrays are not pickled."""
        mine = jax.process_index() == source
        head = (tree.head, [len(part) for part in tree.arrays]) if mine and tree else None
        head, lengths = self.gather(head)[source]
        if mine and tree:
            flat = np.concatenate([np.empty(0, np.uint8), *tree.arrays])
        else:
            flat = np.empty(sum(lengths), np.uint8)
        for start in range(0, len(flat), _CHUNK_BYTES):
            part = slice(start, start + _CHUNK_BYTES)
            flat[part] = multihost_utils.broadcast_one_to_all(flat[part], is_source=mine)
        return Tree(head, [each.copy() for each in np.split(flat, np.cumsum(lengths))[:-1]])

    def destroy(self, connections: Connections) -> None:
        """End the present group without waiting for the other processes.

        Raises TimeoutError if JAX does not end it.
        """
        connections.close()
        if self._relay is not None:
            self._relay.fall_silent()
        if self._front is not None:
            self._front.close()
        ending = threading.Thread(target=self._destroy, name="elasticjob-destroy", daemon=True)
        ending.start()
        ending.join(_DESTROY_SECONDS)
        if ending.is_alive():
            raise TimeoutError(f"the JAX backend has not ended within {_DESTROY_SECONDS:g} s")

    def close(self) -> None:
        """Remove the sockets' files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _destroy(self) -> None:
        _clear()
        client = _state.client
        service = _state.service
        _state.client = None
        _state.service = None
        with contextlib.suppress(*self.errors):
            if client is not None:
                client.shutdown()
        del client
        gc.collect()
        if service is not None:
            service.shutdown()
        if self._relay is not None:
            self._relay.close()
            self._relay = None


def _gather_rows(data: bytes, size: int) -> list[bytes]:
    """Return of all ranks: the length of the data, and what fits of it into so many bytes."""
    row = (len(data).to_bytes(_LENGTH_BYTES, "big") + data)[:size].ljust(size, b"\0")
    gathered = multihost_utils.process_allgather(np.frombuffer(row, np.uint8))
    return [bytes(each) for each in np.asarray(gathered)]


def _clear() -> None:
    """Forget the backend, its devices and what was compiled for them."""
    with contextlib.suppress(*Meetings.errors):
        jax.effects_barrier()  # raises the error of a broken collective once
    jax.extend.backend.clear_backends()
    jax.clear_caches()
    gc.collect()
