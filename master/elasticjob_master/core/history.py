"""What has happened to a job and how fast it was, kept small: for people who ask why, also after the master's death.

Two bounds hold whatever happens. Of the samples the one that is missed least goes first, so that the last minutes are
told in seconds and the first day in hours. Of the events the oldest of the most frequent reason goes first, so that a
thousand registrations do not push out the one stall.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

SAMPLE_SECONDS = 5.0
"""Time between two samples while anything changes."""
MOST_SAMPLES = 240
MOST_EVENTS = 200
LONGEST_REASON = 40
LONGEST_MESSAGE = 200
"""In bytes, as the events are stored with the master's state."""


class Sample(NamedTuple):
    """How the job went at one moment. `time` is in seconds since the epoch."""

    number: int
    time: float
    round: int
    world_size: int
    step: int
    samples_per_second: float

    def same_values_as(self, other: Sample) -> bool:
        """Tell whether it says what another one says, but for the time."""
        return self[2:] == other[2:]


class Event(NamedTuple):
    """Something that happened; `times` times before anything else of its reason did, the last time at `time`."""

    number: int
    time: float
    reason: str
    message: str
    times: int = 1

    def text(self) -> str:
        """Return the message for people."""
        return self.message if self.times == 1 else f"{self.message} ({self.times} times)"


class History:
    """Samples and events in the order in which they came. Numbers grow with both, so what is new can be told."""

    def __init__(self) -> None:
        self.number = 0
        self.event_totals: Counter[str] = Counter()
        """Events by reason, of this master's time only."""
        self._samples: list[Sample] = []
        self._events: dict[str, deque[Event]] = {}
        self._kept = 0

    def add_event(self, reason: str, message: str, wall: float) -> None:
        """Note what has happened; the same once more replaces the last of its reason and is counted.

        Args:
            reason: in CamelCase; one of a few that the code knows.
            message: for people; it is cut at a bound.
            wall: seconds since the epoch.
        """
        reason, message = _line(reason, LONGEST_REASON), _line(message, LONGEST_MESSAGE)
        self.number += 1
        self.event_totals[reason] += 1
        kept = self._events.setdefault(reason, deque())
        if kept and kept[-1].message == message:
            last = kept.pop()
            kept.append(last._replace(number=self.number, time=wall, times=last.times + 1))
            return
        kept.append(Event(self.number, wall, reason, message))
        self._kept += 1
        if self._kept > MOST_EVENTS:
            most = max(self._events, key=lambda reason: (len(self._events[reason]), -self._events[reason][0].number))
            self._events[most].popleft()
            self._kept -= 1
            if not self._events[most]:
                del self._events[most]

    def add_sample(self, *, wall: float, world_round: int, world_size: int, step: int, rate: float) -> None:
        """Note how the job goes, unless it went just like that before."""
        fresh = Sample(self.number + 1, wall, world_round, world_size, step, rate)
        if self._samples and fresh.same_values_as(self._samples[-1]):
            return
        self.number += 1
        self._samples.append(fresh)
        if len(self._samples) > MOST_SAMPLES:
            self._thin_out()

    def has_event(self, reason: str, message: str) -> bool:
        """Tell whether an event is kept, as it would be noted now."""
        text = _line(message, LONGEST_MESSAGE)
        return any(event.message == text for event in self._events.get(reason, ()))

    def samples(self, after: int = 0) -> list[Sample]:
        """Return the samples that are newer than a number."""
        return [sample for sample in self._samples if sample.number > after]

    def events(self, after: int = 0) -> list[Event]:
        """Return the events that are newer than a number."""
        found = [event for events in self._events.values() for event in events if event.number > after]
        return sorted(found, key=lambda event: event.number)

    def restore(self, samples: Iterable[Sample], events: Iterable[Event]) -> None:
        """Take what an earlier master kept; the bounds may have become smaller since."""
        self._samples = list(samples)[-MOST_SAMPLES:]
        latest = list(events)[-MOST_EVENTS:]
        self._events, self._kept = {}, len(latest)
        for event in latest:
            self._events.setdefault(event.reason, deque()).append(event)
        self.number = max([0, *(each.number for each in self._samples), *(each.number for each in latest)])

    def _thin_out(self) -> None:
        """Drop the sample in whose place its neighbours are closest together, for its age; never the first or last."""
        samples, now = self._samples, self._samples[-1].time

        def missed(place: int) -> float:
            age = now - samples[place].time
            return (samples[place + 1].time - samples[place - 1].time) / max(age, SAMPLE_SECONDS)

        del samples[min(range(1, len(samples) - 1), key=missed)]


def _line(text: str, longest: int) -> str:
    """Return one printable line of at most so many bytes."""
    printable = "".join(character if character.isprintable() else " " for character in text[:longest])
    return printable.encode()[:longest].decode(errors="ignore")
