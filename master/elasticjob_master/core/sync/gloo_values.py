"""The values with which the processes of one world connect to each other by Gloo.

Kept in memory only. Each process puts a list of addresses, one for each other process, so the
values of a large world take megabytes. They are needed only while the world connects. The agents
keep the values of their own processes, and put them again at a restarted master.
"""

from __future__ import annotations

from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent

MOST_KEYS = 65_536
LONGEST_KEY = 512
LONGEST_VALUE = 512 * 1024
MOST_BYTES = 128 * 1024 * 1024
"""The most bytes of all keys and values together: a world of about 900 processes."""


class GlooValues:
    """The values of the latest world."""

    def __init__(self) -> None:
        self.round = 0
        self._values: dict[str, bytes] = {}
        self._bytes = 0

    def put(self, round_: int, key: str, value: bytes) -> None:
        """Set a value; a later round removes those of the one before.

        Raises:
            BadRequest: the key or the value is too long.
            LimitReached: there are too many values.
            NotCurrent: the round is over.
        """
        if not 0 < len(key) <= LONGEST_KEY:
            raise BadRequest(f"key has {len(key)} characters; it must have 1 to {LONGEST_KEY}")
        if len(value) > LONGEST_VALUE:
            raise BadRequest(f"value has {len(value)} bytes; it must have at most {LONGEST_VALUE}")
        self._turn_to(round_)
        grown = (
            self._bytes
            + len(value)
            - len(self._values.get(key, b""))
            + (0 if key in self._values else len(key))
        )
        if grown > MOST_BYTES or (key not in self._values and len(self._values) >= MOST_KEYS):
            raise LimitReached(
                f"values take {self._bytes} bytes in {len(self._values)} keys; "
                f"{MOST_BYTES} bytes in {MOST_KEYS} keys are the most"
            )
        self._values[key] = value
        self._bytes = grown

    def get(self, round_: int, key: str) -> bytes | None:
        """Return a value, or None if it was not put yet. Raises `NotCurrent`: the round is over."""
        self._turn_to(round_)
        return self._values.get(key)

    def delete(self, round_: int, key: str) -> None:
        """Remove a value, if there is one. Raises `NotCurrent`: the round is over."""
        self._turn_to(round_)
        value = self._values.pop(key, None)
        if value is not None:
            self._bytes -= len(key) + len(value)

    def _turn_to(self, round_: int) -> None:
        if round_ < self.round:
            raise NotCurrent(f"round is {round_}; it is over, the present one is {self.round}")
        if round_ > self.round:
            self.round = round_
            self._values = {}
            self._bytes = 0
