"""Draws the faults of a chaos run with their times, its jobs, and each job's requests from the seed
alone.

A draw does not depend on the course of the run: a target is a number from 0 to 1, and selects one
of those that exist at the time. Enabling or disabling kinds of faults does not change the draws of
the others.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

FAULTS = {
    **dict.fromkeys(
        ("kill-operator", "kill-master", "kill-agent", "kill-training"), "SIGKILL of a process"
    ),
    **dict.fromkeys(
        ("kill-api-server", "kill-etcd"), "SIGKILL; it is started again after a second"
    ),
    **dict.fromkeys(
        ("freeze-operator", "freeze-master", "freeze-agent", "freeze-training"),
        "SIGSTOP, then SIGCONT",
    ),
    "vanish-worker": "nothing that a pod sends arrives for a while, as if its node were gone",
    "freeze-pod": "the same for an agent and its training process, as for a frozen machine",
    **dict.fromkeys(("freeze-api-server", "freeze-etcd"), "SIGSTOP, then SIGCONT"),
    **dict.fromkeys(
        ("reset-operator", "reset-masters"), "all connections to the API server are reset"
    ),
    **dict.fromkeys(
        ("cut-operator", "cut-masters"),
        "nothing gets through to the API server for a while, and no error",
    ),
    **dict.fromkeys(
        ("silence-operator", "silence-masters"), "present connections are half open, and remain so"
    ),
    "full-disk": "the volume of the checkpoints and of the agents' temporary files is full",
    "full-disk-etcd": "etcd cannot write any more, and ends; it is restarted after a second",
    **dict.fromkeys(("delete-worker", "delete-master"), "a pod is deleted"),
    **dict.fromkeys(
        ("delete-service", "delete-secret", "delete-config-map"), "an object of a job is deleted"
    ),
    **dict.fromkeys(
        ("delete-role", "delete-role-binding", "delete-account"), "an object of a job is deleted"
    ),
    "delete-network-policy": "an object of a job is deleted",
    "delete-plan": "a ScalePlan, waiting, executed or finished, is deleted",
    "delete-request": "a ScaleIn or ScaleOut is deleted",
    "delete-lease": "the Lease of the operators is deleted",
    **dict.fromkeys(
        ("clock-operator", "clock-master", "clock-worker"),
        "the wall clock jumps, and jumps back later",
    ),
    "tamper-status": "the status of a job is written with the rights of its master",
    "tamper-progress": "odd values of progress are written with the rights of the job's master",
    "tamper-labels": "a label of a pod is changed by hand",
}
"""Every kind of fault, and its effect."""

REQUESTS = ("out", "in", "plan", "migrate", "resources", "scale", "edit", "suspend")
"""The requests that users make; the auto-scaler of some jobs makes its own."""
PROGRAMS = ("independent", "synchronous", "continuing")
MOST_WORKERS = 4


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds after the beginning of the run.
        kind: a key of `FAULTS`.
        target: the place, from 0 to 1, in the sorted list of possible targets.
        seconds: how long it lasts, if it lasts.
        choice: a number from 0 to 1 for any other choice.
    """

    at: float
    kind: str
    target: float
    seconds: float
    choice: float


@dataclass(frozen=True)
class Request:
    """A request of a user, `after` seconds after the previous one.

    `amount` is a count, size or number of seconds.
    """

    kind: str
    after: float
    amount: int


@dataclass(frozen=True)
class JobDraw:
    """One job and its requests.

    `priority`: the priority class of a job in the run's pool; None for one in no pool.
    """

    name: str
    program: str
    samples: int
    workers: int
    auto: bool
    requests: tuple[Request, ...]
    priority: str | None = None


def draw_faults(seed: int, seconds: float, gap: float) -> list[Fault]:
    """Return all faults of a run, one every `gap` seconds on average.

    Every kind occurs before one occurs twice.
    """
    rng = random.Random(f"faults {seed}")
    found = list[Fault]()
    bag = list[str]()
    at = gap
    while at < seconds:
        bag = bag or rng.sample(list(FAULTS), len(FAULTS))
        long = rng.random() < 0.25
        lasts = rng.uniform(10, 30) if long else rng.uniform(0.5, 6)
        found.append(Fault(round(at, 1), bag.pop(), rng.random(), round(lasts, 1), rng.random()))
        at += rng.uniform(0.3, 1.7) * gap
    return found


def switched_on(choice: str) -> set[str]:
    """Return the enabled kinds of faults: the named ones, or all except those named with a minus.

    Raises:
        ValueError: a name is not one of a kind.
    """
    named = [name for name in choice.replace(",", " ").split() if name]
    without = {name.removeprefix("-") for name in named if name.startswith("-")}
    only = {name for name in named if not name.startswith("-")}
    if unknown := sorted((without | only) - FAULTS.keys() - {"none"}):
        raise ValueError(
            f"no fault is called {', '.join(unknown)}; there are {', '.join(FAULTS)} and none"
        )
    return {name for name in FAULTS if (not only or name in only) and name not in without}


def draw_jobs(seed: int) -> Iterator[JobDraw]:
    """Yield job after job, without end."""
    number = 0
    while True:
        rng = random.Random(f"job {seed} {number}")
        yield JobDraw(
            name=f"job-{number}",
            program=PROGRAMS[number % len(PROGRAMS)],
            samples=rng.randrange(1600, 3600, 4),
            workers=rng.randint(1, 3),
            auto=rng.random() < 0.2,
            requests=tuple(_requests(rng, REQUESTS)),
        )
        number += 1


def _requests(rng: random.Random, kinds: Collection[str]) -> Iterator[Request]:
    for kind in rng.sample(sorted(kinds), rng.randint(3, len(kinds))):
        amounts = {
            "plan": (1, MOST_WORKERS),
            "scale": (1, MOST_WORKERS),
            "edit": (1, MOST_WORKERS),
            "suspend": (1, 12),
        }
        low, high = amounts.get(kind, (1, 2))
        yield Request(kind, round(rng.uniform(1, 10), 1), rng.randint(low, high))
