"""Tables of jobs on a terminal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_cli.jobs.listing import jobs_table, plans_table, request_as_plan

from tests.support.shown import shown, shown_lines


def job(message: str = "", **metadata: Any) -> ElasticJob:
    return ElasticJob(
        metadata=ObjectMeta(name="crashing-job", namespace="ns", **metadata),
        spec=ElasticJobSpec(framework="custom", replica_specs={}),
        status=ElasticJobStatus(phase="Failed", message=message),
    )


def test_a_long_message_takes_no_room_from_the_names_on_80_columns() -> None:
    ended = job("worker 0 failed and its restartLimit 3 is used up " * 3)
    table = jobs_table([ended], 0.0, all_namespaces=False, wide=True)
    lines = shown(table, width=80).splitlines()
    assert "crashing-job  Failed" in lines[1]
    assert max(map(len, lines)) <= 80


def test_the_wide_list_says_who_has_created_a_job_where_that_is_recorded() -> None:
    recorded = job(annotations={names.ANNOTATION_CREATED_BY: "alice"})
    for found, by in ((job(), ""), (recorded, "alice")):
        text = shown(jobs_table([found], 0.0, all_namespaces=False, wide=True))
        assert ("CREATED-BY" in text, by in text) == (bool(by), True)


@pytest.mark.guarantee("cause-comes-first")
@pytest.mark.parametrize(
    ("message", "shown_text"),
    [
        (
            'exit code 1: Traceback:\n  File "a.py", line 1\n    f({})\nKeyError: 1',
            "exit code 1: Traceback: … KeyError: 1",
        ),
        (
            'exit code 1: KeyError: 1\nTraceback:\n  File "a.py", line 1\n[W] Warning: late',
            "exit code 1: KeyError: 1 …",
        ),
    ],
    ids=["of 0.1.0", "today's"],
)
def test_a_job_that_ended_by_a_traceback_has_one_line_with_its_error(
    message: str, shown_text: str
) -> None:
    table = jobs_table([job(message)], 0.0, all_namespaces=False, wide=True)
    assert shown_lines(table)[1].endswith(shown_text)


def test_a_refused_request_is_listed_among_the_plans_with_its_change_and_the_reason() -> None:
    refused = {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ScaleIn",
        "metadata": {"name": "a-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"jobName": "a", "podNames": ["a-worker-1", "a-worker-2"]},
        "status": {"phase": "ScaleFailed", "message": "spec.podNames[0]: no"},
    }
    plans = [msgspec.convert(request_as_plan(refused), ScalePlan)]
    table = plans_table(plans, parse_time("2026-01-01T00:00:09Z"), wide=False)
    assert shown_lines(table)[1] == "a-1 ScaleIn worker -2 Failed 9s spec.podNames[0]: no"
