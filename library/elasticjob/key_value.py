"""A key-value store and barriers for the processes of one world, kept by the master.

Both belong to one world: a process of another round has no access. They are for addresses,
identifiers and agreements, not for data. A change is stored before it is answered, so that it
survives a restart of the master. In a cluster that takes some 10 to 40 ms. After eight changes in a
row the master stores once a second, all changes of that second together.
"""

from __future__ import annotations

import base64
import threading
from collections import Counter
from typing import Any

from elasticjob_api.limits import MAX_KEYS_PER_REQUEST

from elasticjob import _process
from elasticjob._agent_connection import AgentConnection, agent_connection
from elasticjob._arguments import check_bytes


class KeyValue:
    """The key-value store of this world; without an agent it is local to this process.

        store = elasticjob.KeyValue()
        if elasticjob.world().rank == 0:
            store.set("address", b"10.0.0.1:9000")
        (address,) = store.wait("address")

    All instances of a world share one store.
    """

    def __init__(self) -> None:
        """Connect to the agent, if there is one."""
        self._agent = agent_connection()

    def set(self, key: str, value: bytes) -> None:
        """Set a value.

        Args:
            key: its name, of 1 to 128 characters; 4,096 names in all.
            value: bytes, at most 64 KiB; all keys and values together at most 256 KiB.

        Raises:
            AgentError: a bound is exceeded, this world has ended, or the agent is unreachable. All
                calls raise it.
        """
        check_bytes("value", value)
        if self._agent is None:
            _local_store.set(key, value)
        else:
            self._agent.call("set_value", key=key, value=_text(value)).result()

    def get(self, key: str) -> bytes | None:
        """Return a value, or None if there is none; does not wait for one."""
        if self._agent is None:
            return _local_store.values.get(key)
        values = self._agent.call("get_values", keys=[key]).result()["values"]
        return None if values is None else base64.b64decode(values[0])

    def wait(self, *keys: str, timeout: float | None = None) -> list[bytes]:
        """Wait until all keys have a value, and return the values.

        Raises:
            TimeoutError: a key has no value after `timeout` seconds.
        """
        if self._agent is None:
            return _local_store.wait(keys, timeout)
        values: list[bytes] = []
        for start in range(0, len(keys), MAX_KEYS_PER_REQUEST):
            batch = list(keys[start : start + MAX_KEYS_PER_REQUEST])
            answer = _call_with_timeout(self._agent, "wait_values", timeout, keys=batch)
            values += [base64.b64decode(value) for value in answer["values"]]
        return values

    def add(self, key: str, amount: int = 1) -> int:
        """Add to a number, a missing one counts as 0, and return the sum.

        The stored value is its decimal digits.
        """
        if self._agent is None:
            return _local_store.add(key, amount)
        return int(self._agent.call("add_value", key=key, amount=amount).result()["value"])

    def delete(self, key: str) -> bool:
        """Remove a value; returns whether there was one."""
        if self._agent is None:
            return _local_store.delete(key)
        return bool(self._agent.call("delete_value", key=key).result()["existed"])

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bytes | None:
        """Set a value if the present one is as expected (None: if there is none).

        Returns the value after that. If each process sets its own value, such as its rank, the
        result shows which process has won.
        """
        check_bytes("value", value)
        if self._agent is None:
            return _local_store.compare_and_set(key, expected, value)
        condition = {"if_absent": True} if expected is None else {"expected": _text(expected)}
        answer = self._agent.call("set_value", key=key, value=_text(value), **condition)
        present = answer.result()["value"]
        return None if present is None else base64.b64decode(present)


def barrier(name: str, *, timeout: float | None = None) -> None:
    """Wait until all processes of this world have called it with this name equally often.

        if elasticjob.world().local_rank == 0:
            download("data")
        elasticjob.barrier("downloaded")

    Args:
        name: a name of 1 to 128 characters; 1,024 names in all.
        timeout: seconds to wait. Default: as long as this world lasts. After a time-out it may be
            called again.

    Raises:
        TimeoutError: not all have arrived in time; the message names some that have not.
        AgentError: this world has ended, a process of it has ended before it has called this, or
            the agent is unreachable.
    """
    agent = agent_connection()
    if agent is None:
        return
    use = _process.world_round(), name
    with _uses_lock:
        number = _uses[use]
    _call_with_timeout(agent, "barrier", timeout, barrier=name, number=number)
    with _uses_lock:
        _uses[use] = max(_uses[use], number + 1)


_uses_lock = threading.Lock()
_uses: Counter[tuple[int, str]] = Counter()
"""The number of uses of each barrier, by round and name."""


def _call_with_timeout(
    agent: AgentConnection, call: str, timeout: float | None, **fields: Any
) -> dict[str, Any]:
    answer = agent.call(call, timeout=timeout, **fields).result()
    if "late" in answer:
        raise TimeoutError(f"after {timeout:g} s: {answer['late']}")
    return answer


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


class _LocalStore:
    """The key-value store of a process without an agent."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self.values[key] = bytes(value)
            self._changed.notify_all()

    def wait(self, keys: tuple[str, ...], timeout: float | None) -> list[bytes]:
        with self._changed:
            if not self._changed.wait_for(lambda: all(key in self.values for key in keys), timeout):
                raise TimeoutError(
                    f"after {timeout:g} s: no value of {[k for k in keys if k not in self.values]}"
                )
            return [self.values[key] for key in keys]

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def delete(self, key: str) -> bool:
        with self._changed:
            return self.values.pop(key, None) is not None

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bytes | None:
        with self._changed:
            if self.values.get(key) == expected:
                self.values[key] = bytes(value)
                self._changed.notify_all()
            return self.values.get(key)


_local_store = _LocalStore()
