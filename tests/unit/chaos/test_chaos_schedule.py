"""Tests that the choices of a chaos run depend on its seed alone."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.support.chaos.schedule import (
    FAULTS,
    PROGRAMS,
    REQUESTS,
    draw_faults,
    draw_jobs,
    switched_on,
)


@pytest.mark.guarantee("random-faults")
def test_equal_seeds_draw_equal_faults_and_jobs_and_other_seeds_others() -> None:
    assert draw_faults(7, 1200, 5) == draw_faults(7, 1200, 5) != draw_faults(8, 1200, 5)
    assert (
        list(islice(draw_jobs(7), 30))
        == list(islice(draw_jobs(7), 30))
        != list(islice(draw_jobs(8), 30))
    )


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = draw_faults(3, 60, 5)
    assert draw_faults(3, 600, 5)[: len(short)] == short


def test_every_kind_of_fault_occurs_before_one_occurs_twice() -> None:
    kinds = [fault.kind for fault in draw_faults(1, 1200, 5)][: len(FAULTS)]
    assert sorted(kinds) == sorted(FAULTS)


def test_twenty_jobs_include_every_request_each_program_and_the_auto_scaler() -> None:
    jobs = list(islice(draw_jobs(1), 20))
    assert {request.kind for job in jobs for request in job.requests} == set(REQUESTS)
    assert {job.program for job in jobs} == set(PROGRAMS)
    assert {job.auto for job in jobs} == {True, False}


def test_kinds_of_faults_are_switched_on_and_off_by_name() -> None:
    assert switched_on("") == set(FAULTS)
    assert switched_on("kill-master, kill-etcd") == {"kill-master", "kill-etcd"}
    assert switched_on("-kill-master") == set(FAULTS) - {"kill-master"}
    assert switched_on("none") == set()
    with pytest.raises(ValueError, match="no fault is called kill-everything"):
        switched_on("kill-everything")
