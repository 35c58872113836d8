"""The job's history: its events, and samples of its progress.

Users see it, and it survives restarts of the master. The number of both is bounded. The sample
whose removal loses least is dropped first, so that the last minutes have a sample every few seconds
and the first day one every hour. The oldest event of the most frequent reason is dropped first, so
that a thousand registrations do not displace the only stall.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

SAMPLE_SECONDS = 5.0
"""Time between two samples while anything changes."""
MOST_SAMPLES = 240
MOST_EVENTS = 200
MOST_SERIES = 8
"""Metrics that are recorded with the samples: those that were reported first."""
LONGEST_REASON = 40
LONGEST_MESSAGE = 200
"""In bytes; bounded because the events are stored with the master's state."""


class Sample(NamedTuple):
    """The job's progress at one moment. `time` is in seconds since the epoch."""

    number: int
    time: float
    round: int
    world_size: int
    step: int
    samples_per_second: float

    def same_values_as(self, other: Sample) -> bool:
        """Return whether another sample has the same values apart from number and time."""
        return self[2:] == other[2:]


class Event(NamedTuple):
    """An event.

    `times` counts its consecutive repetitions; the last one was at `time`, in seconds since the
    epoch.
    """

    number: int
    time: float
    reason: str
    message: str
    times: int = 1

    def text(self) -> str:
        """Return the message, with the number of repetitions."""
        return self.message if self.times == 1 else f"{self.message} ({self.times} times)"


class History:
    """Samples and events in their order.

    They share one growing number, by which clients ask for newer ones.
    """

    def __init__(self) -> None:
        self.number = 0
        self.event_totals: Counter[str] = Counter()
        """The number of events by reason since the start of this master."""
        self._samples: list[Sample] = []
        self._metrics: dict[int, dict[str, float]] = {}
        """By the number of the sample with which they were taken."""
        self._series: dict[str, None] = {}
        """The names of the metrics that are recorded, in their order."""
        self._events: dict[str, deque[Event]] = {}
        self._event_count = 0

    def add_event(self, reason: str, message: str, wall: float) -> None:
        """Add an event; a repetition of the last event of its reason only increases its count.

        Args:
            reason: in CamelCase, one of a few constants.
            message: for users; it is cut to `LONGEST_MESSAGE` bytes.
            wall: seconds since the epoch.
        """
        reason = _line(reason, LONGEST_REASON)
        message = _line(message, LONGEST_MESSAGE)
        self.number += 1
        self.event_totals[reason] += 1
        kept = self._events.setdefault(reason, deque())
        if kept and kept[-1].message == message:
            last = kept.pop()
            kept.append(last._replace(number=self.number, time=wall, times=last.times + 1))
            return
        kept.append(Event(self.number, wall, reason, message))
        self._event_count += 1
        if self._event_count > MOST_EVENTS:
            most = max(
                self._events,
                key=lambda reason: (len(self._events[reason]), -self._events[reason][0].number),
            )
            self._events[most].popleft()
            self._event_count -= 1
            if not self._events[most]:
                del self._events[most]

    def add_sample(
        self, sample: Sample, metrics: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Add a sample, unless it has the same values as the last one; it gets its number here.

        Args:
            sample: see there.
            metrics: the last value of each metric; those beyond `MOST_SERIES` are left out.
        """
        new = sample._replace(number=self.number + 1)
        if self._samples and new.same_values_as(self._samples[-1]):
            return
        self.number += 1
        self._samples.append(new)
        self._series |= dict.fromkeys(
            islice((name for name in metrics if name not in self._series), self._room())
        )
        if taken := {
            name: float(f"{metrics[name]:.5g}") for name in self._series if name in metrics
        }:
            self._metrics[new.number] = taken
        if len(self._samples) > MOST_SAMPLES:
            self._thin_out()

    def has_event(self, reason: str, message: str) -> bool:
        """Return whether an event with this reason and message is in the history."""
        text = _line(message, LONGEST_MESSAGE)
        return any(event.message == text for event in self._events.get(reason, ()))

    def samples(self, after: int = 0) -> list[Sample]:
        """Return the samples with a higher number."""
        return [sample for sample in self._samples if sample.number > after]

    def metrics(self, number: int) -> Mapping[str, float]:
        """Return the metrics that were taken with the sample of this number."""
        return self._metrics.get(number, {})

    def series(self) -> dict[str, list[float | None]]:
        """Return by metric its values, one for each sample; None: it had none."""
        return {
            name: [self.metrics(each.number).get(name) for each in self._samples]
            for name in self._series
        }

    def events(self, after: int = 0) -> list[Event]:
        """Return the events with a higher number."""
        found = [
            event for events in self._events.values() for event in events if event.number > after
        ]
        return sorted(found, key=lambda event: event.number)

    def restore(
        self,
        samples: Iterable[Sample],
        events: Iterable[Event],
        series: Mapping[str, Sequence[float | None]] = MappingProxyType({}),
    ) -> None:
        """Restore the history of an earlier master, whose bounds may have been larger."""
        numbered = list(samples)
        self._samples = numbered[-MOST_SAMPLES:]
        self._series = dict.fromkeys(islice(series, MOST_SERIES))
        self._metrics = {}
        for name in self._series:
            for sample, value in zip(numbered, series[name], strict=False):
                if value is not None:
                    self._metrics.setdefault(sample.number, {})[name] = value
        latest = list(events)[-MOST_EVENTS:]
        self._events, self._event_count = {}, len(latest)
        for event in latest:
            self._events.setdefault(event.reason, deque()).append(event)
        self.number = max(
            [0, *(each.number for each in self._samples), *(each.number for each in latest)]
        )

    def _thin_out(self) -> None:
        """Drop the sample whose neighbours are closest together relative to its age.

        Never the first or the last.
        """
        samples = self._samples
        now = self._samples[-1].time

        def relative_gap(position: int) -> float:
            age = now - samples[position].time
            return (samples[position + 1].time - samples[position - 1].time) / max(
                age, SAMPLE_SECONDS
            )

        dropped = samples.pop(min(range(1, len(samples) - 1), key=relative_gap))
        self._metrics.pop(dropped.number, None)

    def _room(self) -> int:
        return MOST_SERIES - len(self._series)


def _line(text: str, longest: int) -> str:
    """Return one printable line of at most so many bytes."""
    printable = "".join(
        character if character.isprintable() else " " for character in text[:longest]
    )
    return printable.encode()[:longest].decode(errors="ignore")
