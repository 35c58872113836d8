"""Joins the process group of a world, and breaks it when the world has changed.

`torch.distributed` waits for a silent peer until a time-out of minutes, and Gloo's groups cannot be
aborted in all versions. A connection that is shut down ends each collective on it at once, in this
process and in the other one, also in a thread of C++.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from elasticjob_api.frameworks import pytorch
from elasticjob_api.frameworks.peer import meeting_port

from elasticjob import _torch_tensors as tensors
from elasticjob._world_group import Connections, InterruptedJoin, Meeting

_OLDEST = (2, 1)
"""Older versions have a thread in each client of the store. C++ does not catch its exception, which
ends the process if the process of rank 0 is killed while the client connects to it.
"""

_POLL_SECONDS = 0.01
_CONNECT_SECONDS = 2.0
_MOST_CONNECT_SECONDS = 8.0
_DESTROY_SECONDS = 10.0
_PART_SECONDS = 10.0


class Meetings:
    """Joins one world after the other.

    The process of rank 0 serves a store for its whole life. Each world uses names of its own in it,
    and a new connection to it.
    """

    errors: tuple[type[Exception], ...] = (RuntimeError, TimeoutError)

    def __init__(self, *, backend: str, timeout: float) -> None:
        """Prepare; `timeout` is that of joining, and of each collective.

        Raises RuntimeError if PyTorch is too old.
        """
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _OLDEST:
            raise RuntimeError(
                f"elasticjob.torch.worlds needs PyTorch 2.1 or later, and this is "
                f"{torch.__version__}: install a newer one, or use onWorldChange: Restart"
            )
        self._backend = backend
        self._timeout = timeout
        self._server: Any = None
        self._here: Any = None
        """The store of the present world."""

    @property
    def device(self) -> torch.device:
        """The device of the tensors that the group communicates."""
        if self._backend == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    @property
    def notices_ends(self) -> bool:
        """Whether the connections show that another process has ended."""
        return self._backend == "gloo"

    def port(self, address: str) -> int:
        """Return the port of the store of the pod with this address."""
        return _port(address)

    def serve(self, address: str) -> None:
        """Serve the store of this process, if that is not done already."""
        if self._server is None:
            server = _store(address, serves=True, seconds=self._timeout)
            server.add("served", 1)  # from its answer on, both ends of its own connection are open
            self._server = server

    def join(self, meeting: Meeting, address: str, interrupted: Callable[[], bool]) -> None:
        """Connect to all processes of a world, at the address of rank 0.

        It is interrupted if another world was announced or this process must stop. Raises
        RuntimeError if the world has ended, or not all processes have come in time.
        """
        deadline = time.monotonic() + self._timeout
        client = self._connect(address, deadline, interrupted)
        here = self._here = dist.PrefixStore(_prefix(meeting.round), client)
        here.add("here", 1)
        while (count := here.add("here", 0)) < meeting.size:
            if interrupted():
                raise InterruptedJoin(f"the world of round {meeting.round} has ended")
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{count} of {meeting.size} processes have called worlds() in the world of "
                    f"round {meeting.round} within {self._timeout:g} s"
                )
            time.sleep(_POLL_SECONDS)
        # The names in the store contain the number of attempts, also of those that failed in this
        # process alone: it would wait for names that the others do not use.
        dist.distributed_c10d._world.group_count = 0
        dist.init_process_group(
            self._backend,
            store=dist.PrefixStore("group", here),
            rank=meeting.rank,
            world_size=meeting.size,
            timeout=timedelta(seconds=self._timeout),
        )
        meeting.connections.complete()

    def arrived(self, round_: int) -> int:
        """Return how many processes wait for the others in a world, at the store of this one."""
        if self._server is None:
            return 0
        return int(dist.PrefixStore(_prefix(round_), self._server).add("here", 0))

    def gather(self, mine: Any) -> list[Any]:
        """Return the objects of all ranks."""
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine)
        return found

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""
        flag = torch.tensor(int(mine), device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)

    def broadcast(self, tree: tensors.Tree, source: int) -> tensors.Tree:
        """Return the committed state of the source, in all ranks."""
        return tensors.broadcast(tree, source, self.device)

    def part(self, meeting: Meeting) -> None:
        """Wait until all ranks have ended their collectives, or one has gone.

        Gloo may forget a receive if its connection is shut down meanwhile, so this needs none.
        """
        deadline = time.monotonic() + _PART_SECONDS
        self._here.add("parted", 1)
        while self._here.add("parted", 0) < meeting.size and time.monotonic() < deadline:
            if meeting.connections.broken():
                return
            time.sleep(_POLL_SECONDS)

    def destroy(self, connections: Connections) -> None:
        """End the present group without waiting for the other processes.

        Raises TimeoutError if the backend does not end it.
        """
        connections.close()
        ending = threading.Thread(target=self._destroy, name="elasticjob-destroy", daemon=True)
        ending.start()
        ending.join(_DESTROY_SECONDS)
        if ending.is_alive():
            raise TimeoutError(f"the process group has not ended within {_DESTROY_SECONDS:g} s")

    def _destroy(self) -> None:
        if not dist.is_initialized():
            return
        abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
        with contextlib.suppress(RuntimeError):
            if self._backend != "gloo" and abort is not None:
                abort()
        with contextlib.suppress(RuntimeError, AssertionError, ValueError):
            if dist.is_initialized():
                dist.destroy_process_group()

    def _connect(self, address: str, deadline: float, interrupted: Callable[[], bool]) -> Any:
        seconds = _CONNECT_SECONDS
        while True:
            try:
                client = _store(address, serves=False, seconds=seconds)
                client.set_timeout(timedelta(seconds=self._timeout))
                return client
            except (RuntimeError, OSError) as error:  # rank 0 does not serve yet
                if interrupted():
                    raise InterruptedJoin("the world has ended") from error
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"rank 0 at {address} has not called worlds() within {self._timeout:g} s"
                    ) from error
                # Rank 0 may have no CPU to answer in a shorter time.
                seconds = min(2 * seconds, _MOST_CONNECT_SECONDS)
                time.sleep(_POLL_SECONDS)


def _store(address: str, *, serves: bool, seconds: float) -> Any:
    return dist.TCPStore(
        address,
        _port(address),
        is_master=serves,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
    )


def _port(address: str) -> int:
    return meeting_port(address, pytorch.PORT, int(os.environ.get("MASTER_PORT", 0)))


def _prefix(round_: int) -> str:
    return f"elasticjob/{round_}"
