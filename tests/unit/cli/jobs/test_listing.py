"""Tables of jobs on a terminal."""

from __future__ import annotations

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_cli.jobs.listing import jobs_table, plans_table, request_as_plan
from msgspec.structs import replace
from rich.console import Console


def test_a_long_message_takes_no_room_from_the_names_on_80_columns() -> None:
    status = ElasticJobStatus(
        phase="Failed", message="worker 0 failed and its restartLimit 3 is used up " * 3
    )
    job = ElasticJob(
        metadata=ObjectMeta(name="crashing-job", namespace="ns"),
        spec=ElasticJobSpec(framework="custom", replica_specs={}),
        status=status,
    )
    shown = Console(width=80)
    with shown.capture() as text:
        shown.print(jobs_table([job], 0.0, all_namespaces=False, wide=True))
    lines = text.get().splitlines()
    assert "crashing-job  Failed" in lines[1]
    assert max(map(len, lines)) <= 80


def test_the_wide_list_says_who_has_created_a_job_where_that_is_recorded() -> None:
    metadata = ObjectMeta(name="a", namespace="ns")
    spec = ElasticJobSpec(framework="custom", replica_specs={})
    recorded = replace(metadata, annotations={names.ANNOTATION_CREATED_BY: "alice"})
    for found, by in ((metadata, ""), (recorded, "alice")):
        shown = Console(width=200)
        with shown.capture() as text:
            job = ElasticJob(metadata=found, spec=spec)
            shown.print(jobs_table([job], 0.0, all_namespaces=False, wide=True))
        assert ("CREATED-BY" in text.get(), by in text.get()) == (bool(by), True)


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
    job = ElasticJob(
        metadata=ObjectMeta(name="a", namespace="ns"),
        spec=ElasticJobSpec(framework="custom", replica_specs={}),
        status=ElasticJobStatus(phase="Failed", message=message),
    )
    shown = Console(width=200)
    with shown.capture() as text:
        shown.print(jobs_table([job], 0.0, all_namespaces=False, wide=True))
    assert text.get().splitlines()[1].rstrip().endswith(shown_text)


def test_a_refused_request_is_listed_among_the_plans_with_its_change_and_the_reason() -> None:
    refused = {
        "apiVersion": "elasticjob.dev/v1alpha1",
        "kind": "ScaleIn",
        "metadata": {"name": "a-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"jobName": "a", "podNames": ["a-worker-1", "a-worker-2"]},
        "status": {"phase": "ScaleFailed", "message": "spec.podNames[0]: no"},
    }
    plans = [msgspec.convert(request_as_plan(refused), ScalePlan)]
    shown = Console(width=120)
    with shown.capture() as text:
        shown.print(plans_table(plans, parse_time("2026-01-01T00:00:09Z"), wide=False))
    assert " ".join(text.get().splitlines()[1].split()) == (
        "a-1 ScaleIn worker -2 Failed 9s spec.podNames[0]: no"
    )
