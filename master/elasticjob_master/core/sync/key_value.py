"""The key-value store with which the processes of one world exchange small values.

A new round empties it. It is meant for addresses, identifiers and counters. It survives a restart
of the master, because it is stored with the master's state. Hence the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from elasticjob_api.limits import MAX_KEYS_PER_REQUEST
from elasticjob_api.refusals import BadRequest, LimitReached

MOST_KEYS = 4096
LONGEST_KEY = 128
LONGEST_VALUE = 64 * 1024
MOST_BYTES = 256 * 1024
"""The most bytes of all keys and values together."""
MOST_ANSWERS = 4096
"""The most results of additions that are kept for repeated requests."""
_MOST = 2**63 - 1
_LONGEST_NUMBER = 20


class KeyValueStore:
    """The values of one round.

    Attributes:
        addition_results: the results of additions, by the requests' ids.
    """

    def __init__(self) -> None:
        self.begin_round(0)

    def begin_round(
        self,
        round_: int,
        values: Mapping[str, bytes] | None = None,
        addition_results: Mapping[str, int] | None = None,
    ) -> None:
        """Remove all values, as another round has begun, or restore those of this round."""
        self.round = round_
        self.values = dict(values or {})
        self.addition_results = dict(addition_results or {})
        self._bytes = sum(_size(key, value) for key, value in self.values.items())

    def set(
        self, key: str, value: bytes, *, expected: bytes | None = None, if_absent: bool = False
    ) -> bytes | None:
        """Set a value, and return the present one, if any.

        If `expected` is given, it is set only if that is the present value; with `if_absent`, only
        if there is none.

        Raises:
            BadRequest, LimitReached: a bound is exceeded.
        """
        check_key(key)
        if len(value) > LONGEST_VALUE:
            raise BadRequest(
                f"value of {key!r} has {len(value)} bytes; it must have at most {LONGEST_VALUE}"
            )
        present = self.values.get(key)
        if (if_absent and present is not None) or (expected is not None and present != expected):
            return present
        self._put(key, value)
        return value

    def first_missing(self, keys: Sequence[str], start: int = 0) -> int | None:
        """Return the position, from `start` on, of the first key without a value, if any."""
        return next((i for i in range(start, len(keys)) if keys[i] not in self.values), None)

    def get_all(self, keys: Iterable[str]) -> list[bytes]:
        """Return the values of keys that all have one."""
        return [self.values[key] for key in keys]

    def add(self, key: str, amount: int, request_id: str) -> int:
        """Add to a number, 0 if there is none, and return the sum.

        A repeated request returns its first result.

        Raises:
            BadRequest, LimitReached: a bound is exceeded, or the value is no number.
        """
        check_key(key)
        if len(request_id) > LONGEST_KEY:
            raise BadRequest(
                f"request_id has {len(request_id)} characters; it must have at most {LONGEST_KEY}"
            )
        if request_id in self.addition_results:
            return self.addition_results[request_id]
        text = self.values.get(key, b"0")
        try:
            if len(text) > _LONGEST_NUMBER:
                raise ValueError
            total = int(text) + amount
        except ValueError:
            raise BadRequest(
                f"value of {key!r} is {text[:40]!r}; only to a whole number can be added"
            ) from None
        if not -_MOST <= total <= _MOST:
            raise BadRequest(
                f"value of {key!r} would be {total}; it must be at most {_MOST} either way"
            )
        self._put(key, str(total).encode())
        if request_id:
            self.addition_results[request_id] = total
            if len(self.addition_results) > MOST_ANSWERS:
                del self.addition_results[next(iter(self.addition_results))]
        return total

    def delete(self, key: str) -> bool:
        """Remove a value; return whether there was one."""
        check_key(key)
        value = self.values.pop(key, None)
        if value is None:
            return False
        self._bytes -= _size(key, value)
        return True

    def _put(self, key: str, value: bytes) -> None:
        present = self.values.get(key)
        if present is None and len(self.values) >= MOST_KEYS:
            raise LimitReached(
                f"there are {MOST_KEYS} keys already; key {key!r} is one too many: delete some"
            )
        total = self._bytes + _size(key, value) - (0 if present is None else _size(key, present))
        if total > MOST_BYTES:
            raise LimitReached(
                f"with {key!r} all keys and values would have {total} bytes; "
                f"the bound is {MOST_BYTES}"
            )
        self.values[key] = value
        self._bytes = total


def check_key(key: str) -> None:
    """Raise `BadRequest` for an invalid key."""
    if not 1 <= len(key) <= LONGEST_KEY:
        raise BadRequest(f"key has {len(key)} characters; it must have 1 to {LONGEST_KEY}")


def check_keys(keys: Sequence[str]) -> None:
    """Raise `BadRequest` for an invalid list of keys."""
    if not 1 <= len(keys) <= MAX_KEYS_PER_REQUEST:
        raise BadRequest(f"keys has {len(keys)} entries; it must have 1 to {MAX_KEYS_PER_REQUEST}")
    if len(set(keys)) < len(keys):
        raise BadRequest("keys has an entry twice")
    for key in keys:
        check_key(key)


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)
