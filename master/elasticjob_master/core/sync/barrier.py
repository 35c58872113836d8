"""Barriers of one round: all members of a world wait for each other, as often as they like.

The callers number the uses of a barrier from 0, so a repeated request, whose answer was lost, is
not another use. A passed barrier stays passed, also after a restart of the master. Callers that
still wait repeat their request. A barrier that a member cannot reach any more is given up: it can
never be passed, so its callers are refused, also those of later uses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent

MOST_BARRIERS = 1024
MOST_WAITING = 64
"""The most barriers at which members wait at the same time."""
LONGEST_NAME = 128


class Barriers:
    """The barriers of one round.

    Attributes:
        passed: how often each barrier was passed.
    """

    def __init__(self) -> None:
        self.begin_round()

    def begin_round(self, passed: Mapping[str, int] | None = None) -> None:
        """Remove all barriers, as another round has begun, or restore those of this round."""
        self.passed = dict(passed or {})
        self._arrived: dict[str, set[str]] = {}
        self._given_up: dict[str, str] = {}
        """Why a barrier can never be passed again, by its name."""

    def arrive(self, name: str, number: int, uid: str, world: Collection[str]) -> bool:
        """Record the arrival of a member of the world.

        Return whether all have arrived, so that this use is passed.

        Raises:
            BadRequest, LimitReached: the request makes no sense, or a bound is exceeded.
            NotCurrent: the barrier was given up.
        """
        if not 1 <= len(name) <= LONGEST_NAME:
            raise BadRequest(f"name has {len(name)} characters; it must have 1 to {LONGEST_NAME}")
        done = self.passed.get(name, 0)
        if number < done:
            return True
        if number > done:
            raise BadRequest(f"number is {number}; barrier {name!r} was passed {done} times")
        if name in self._given_up:
            raise NotCurrent(self._given_up[name])
        arrived = self._arrived.get(name)
        if arrived is None:
            if (
                name not in self.passed
                and len(self.passed.keys() | self._arrived.keys()) >= MOST_BARRIERS
            ):
                raise LimitReached(
                    f"there are {MOST_BARRIERS} barriers already; "
                    f"{name!r} is one too many in this round"
                )
            if len(self._arrived) >= MOST_WAITING:
                raise LimitReached(
                    f"{MOST_WAITING} barriers are waited at already; {name!r} is one too many"
                )
            arrived = self._arrived[name] = set()
        arrived.add(uid)
        if len(arrived) < len(world):  # only members of the world come here
            return False
        self.passed[name] = done + 1
        del self._arrived[name]
        return True

    @property
    def waited_for(self) -> bool:
        """Whether some members have arrived at a barrier and others have not."""
        return bool(self._arrived)

    def give_up(self, ended: Mapping[str, str]) -> list[str]:
        """Give up the barriers that members have to reach which have ended; return their names.

        Args:
            ended: the members of the world that cannot arrive any more: their pods by UID.
        """
        names = []
        for name, arrived in list(self._arrived.items()):
            absent = [pod for uid, pod in ended.items() if uid not in arrived]
            if absent:
                self._given_up[name] = (
                    f"barrier {name!r} cannot be passed: {len(absent)} of the processes that have "
                    f"not arrived have ended, such as that of {absent[0]}"
                )
                del self._arrived[name]
                names.append(name)
        return names

    def absent(self, name: str, world: Collection[str]) -> list[str]:
        """Return the UIDs of the members that have not arrived yet."""
        arrived = self._arrived.get(name, set())
        return [uid for uid in world if uid not in arrived]
