"""The job's history: its events, and samples of its progress.

The history is stored, and the number of events and samples is bounded. The sample whose removal
loses the least is dropped first, so that the last minutes have a sample every few seconds and the
first day has one every hour. The oldest event of the most frequent reason is dropped first, so that
a thousand registrations do not displace the only stall.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

SAMPLE_SECONDS = 5.0
"""The time between two samples while values change."""
MOST_SAMPLES = 240
MOST_EVENTS = 200
MOST_SERIES = 8
"""The most metrics recorded with the samples. Those reported first are recorded."""
LONGEST_REASON = 40
LONGEST_MESSAGE = 200
PROCESS_RESTARTED = "ProcessRestarted"
"""The reason of a restart of a training process in its pod."""
"""In bytes. The bound keeps the master's stored state small."""


class Sample(NamedTuple):
    """The job's progress at one moment; `time` is in seconds since the epoch.

    Earlier masters read what is stored of it, so it gets no further field.
    """

    number: int
    time: float
    round: int
    world_size: int
    step: int
    samples_per_second: float


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


class NewEvent(NamedTuple):
    """Something that has happened, to be recorded in the history. Only the controller does that.

    Attributes:
        reason: one word in CamelCase; docs/queries.md lists all of them.
        message: a text for people.
    """

    reason: str
    message: str


class History:
    """The samples and events of a job.

    Each gets the next number of one common sequence. A client asks for those after a number.
    """

    def __init__(self) -> None:
        self.number = 0
        self.event_totals: Counter[str] = Counter()
        """The number of events by reason since the start of this master."""
        self._samples: list[Sample] = []
        self._metrics: dict[int, dict[str, float]] = {}
        """By the number of their sample."""
        self._spent: dict[int, tuple[float, ...]] = {}
        """See `spent`, by the number of the sample."""
        self._series: dict[str, None] = {}
        """The names of the recorded metrics, in the order of their first report."""
        self._events: dict[str, deque[Event]] = {}

    def add_event(self, reason: str, message: str, wall: float) -> None:
        """Add an event; a repetition of the last event of its reason only increases its count.

        The reason is one of a few constants in CamelCase. The message is a text for users, which is
        cut to `LONGEST_MESSAGE` bytes.
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
        if sum(map(len, self._events.values())) > MOST_EVENTS:
            self._drop_an_event()

    def add_sample(
        self,
        sample: Sample,
        metrics: Mapping[str, float] = MappingProxyType({}),
        spent: tuple[float, ...] = (),
    ) -> None:
        """Add a sample, which gets a number, unless it has the same progress as the last one.

        Args:
            sample: the sample.
            metrics: the last value of each metric. Metrics beyond `MOST_SERIES` are left out.
            spent: the seconds spent on each activity up to then, in the order of `SPENT`.
        """
        new = sample._replace(number=self.number + 1)
        if self._samples and new[2:] == self._samples[-1][2:]:
            return
        self.number += 1
        self._samples.append(new)
        for name in metrics:
            if len(self._series) < MOST_SERIES:
                self._series.setdefault(name)
        recorded = {name: float(f"{metrics[name]:.5g}") for name in self._series if name in metrics}
        if recorded:
            self._metrics[new.number] = recorded
        if spent:
            self._spent[new.number] = spent
        if len(self._samples) > MOST_SAMPLES:
            self._thin_out()

    def latest(self, reason: str) -> str:
        """Return the message of the last event with this reason, or an empty text."""
        kept = self._events.get(reason)
        return kept[-1].message if kept else ""

    def has_event(self, reason: str, message: str) -> bool:
        """Return whether an event with this reason and message is in the history."""
        text = _line(message, LONGEST_MESSAGE)
        return any(event.message == text for event in self._events.get(reason, ()))

    def samples(self, after: int = 0) -> list[Sample]:
        """Return the samples with a higher number."""
        return [sample for sample in self._samples if sample.number > after]

    def metrics(self, number: int) -> Mapping[str, float]:
        """Return the metrics that were recorded with the sample of this number."""
        return self._metrics.get(number, {})

    def spent(self, number: int) -> tuple[float, ...]:
        """Return what time was spent on until a sample; empty if an earlier master recorded it."""
        return self._spent.get(number, ())

    def all_spent(self) -> list[tuple[float, ...]]:
        """Return `spent` for each sample; an empty list if there is none."""
        return [self.spent(each.number) for each in self._samples] if self._spent else []

    def series(self) -> dict[str, list[float | None]]:
        """Return the values of each metric, one for each sample; None if the sample has none."""
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
        spent: Sequence[tuple[float, ...]] = (),
    ) -> None:
        """Restore the history of an earlier master, whose bounds may have been higher."""
        numbered = list(samples)
        self._samples = numbered[-MOST_SAMPLES:]
        self._series = dict.fromkeys(islice(series, MOST_SERIES))
        self._spent = {
            sample.number: seconds
            for sample, seconds in zip(numbered, spent, strict=False)
            if seconds
        }
        self._metrics = {}
        for name in self._series:
            for sample, value in zip(numbered, series[name], strict=False):
                if value is not None:
                    self._metrics.setdefault(sample.number, {})[name] = value
        latest = list(events)[-MOST_EVENTS:]
        self._events = {}
        for event in latest:
            self._events.setdefault(event.reason, deque()).append(event)
        numbers = [sample.number for sample in self._samples] + [event.number for event in latest]
        self.number = max(numbers, default=0)

    def _drop_an_event(self) -> None:
        """Drop the oldest event of the most frequent reason."""

        def frequency(reason: str) -> tuple[int, int]:
            events = self._events[reason]
            return len(events), -events[0].number

        most_frequent = max(self._events, key=frequency)
        self._events[most_frequent].popleft()
        if not self._events[most_frequent]:
            del self._events[most_frequent]

    def _thin_out(self) -> None:
        """Drop the sample whose neighbours are closest together relative to its age.

        The first and the last sample stay.
        """
        samples = self._samples
        now = self._samples[-1].time

        def relative_gap(position: int) -> float:
            age = max(now - samples[position].time, SAMPLE_SECONDS)
            return (samples[position + 1].time - samples[position - 1].time) / age

        dropped = samples.pop(min(range(1, len(samples) - 1), key=relative_gap))
        self._metrics.pop(dropped.number, None)
        self._spent.pop(dropped.number, None)


def _line(text: str, longest: int) -> str:
    """Return the text as one printable line of at most `longest` bytes."""
    printable = "".join(
        character if character.isprintable() else " " for character in text[:longest]
    )
    return printable.encode()[:longest].decode(errors="ignore")
