"""Tests that a wrong clock of this machine gives way to the API server's."""

from __future__ import annotations

import logging
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from elasticjob_kube import clock as module
from elasticjob_kube.clock import Clock

REAL = 1_800_000_000.0


class Machine:
    """A machine whose clock is ahead by some seconds, and an API server with the real time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
        self.ahead = ahead
        self.passed = 0.0
        self.clock = Clock()
        fake = SimpleNamespace(
            time=lambda: self.real + self.ahead, monotonic=lambda: 5.0 + self.passed
        )
        monkeypatch.setattr(module, "time", fake)

    @property
    def real(self) -> float:
        return REAL + self.passed

    def answer(self, *, off: float = 0.0, seconds: float = 0.1) -> None:
        """Get an answer of a server whose clock is off by some seconds, a while later."""
        self.passed += 2.0
        self.clock.observe(formatdate(self.real + off, usegmt=True), seconds)


@pytest.mark.guarantee("wrong-clock")
@pytest.mark.parametrize("ahead", [3600.0, -7200.0, 31.5])
def test_a_wrong_clock_is_replaced_by_the_api_servers_and_reported_once(
    ahead: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(monkeypatch, ahead)
    for _ in range(9):
        machine.answer()
        assert machine.clock.now() == pytest.approx(machine.real, abs=1)
    assert machine.clock.seconds_ahead() == pytest.approx(ahead, abs=1)
    machine.passed += 3600.0
    assert machine.clock.now() == pytest.approx(machine.real, abs=1), "also long after an answer"
    [line] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert ("ahead" if ahead > 0 else "behind") in line.getMessage()
    assert machine.clock.corrections == 1


@pytest.mark.guarantee("wrong-clock")
def test_a_clock_that_is_set_right_or_wrong_meanwhile_is_noticed_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, 0.0)
    machine.answer()
    machine.ahead = 500.0
    assert machine.clock.now() == pytest.approx(machine.real, abs=1)
    machine.answer()
    machine.ahead = 0.0
    assert machine.clock.now() == machine.real
    machine.answer()
    machine.ahead = 500.0
    machine.answer()
    assert machine.clock.corrections == 2


def test_small_differences_one_odd_answer_slow_answers_and_none_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, 25.0)
    assert machine.clock.now() == machine.real + 25.0, "before the first answer"
    far = f"Mon, 01 Jan {'9' * 30} 00:00:00 GMT"
    for date in ("", None, "yesterday", "Mon, 99 Jan 2026 00:00:00 GMT", far):
        machine.clock.observe(date, 0.1)
    for off in (0.0, 0.0, 9e5, 0.0, -9e5):
        machine.answer(off=off)
        machine.answer(off=9e5, seconds=20.0)
        assert machine.clock.now() == machine.real + 25.0
    assert machine.clock.corrections == 0
