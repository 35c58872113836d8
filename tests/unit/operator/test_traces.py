"""Tests which spans the operator sends of jobs, plans and pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from elasticjob_api.traces import Span
from elasticjob_operator.core.manifests.master_pod import master_pod
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.traces import job_context, job_span, plan_span, pod_span

UID = "0aa1b2c3-d4e5-4678-9abc-def012345678"
CREATED = "2026-01-01T00:00:00Z"
NOW = parse_time("2026-01-01T01:00:00Z")
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"


def job(phase: str = "Running", traceparent: str = "", **status: Any) -> ElasticJob:
    annotations = {names.ANNOTATION_TRACEPARENT: traceparent}
    body = {
        "metadata": {
            "name": "job", "namespace": "ns", "uid": UID,
            "creationTimestamp": CREATED, "annotations": annotations,
        },
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {"phase": phase, **status},
    }  # fmt: skip
    return msgspec.convert(body, ElasticJob)


def plan(phase: str = "Executing", **status: Any) -> ScalePlan:
    body = {
        "metadata": {
            "name": "plan", "namespace": "ns", "uid": "p",
            "creationTimestamp": "2026-01-01T00:10:00Z",
        },
        "spec": {"jobName": "job", "source": "Auto", "reason": "12 samples/s to 20"},
        "status": {"phase": phase, "startTime": "2026-01-01T00:10:05Z", **status},
    }  # fmt: skip
    return msgspec.convert(body, ScalePlan)


def pod(phase: str, created: str = CREATED) -> Pod:
    metadata = {"name": "job-worker-3", "uid": "w", "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, Pod)


def sent(span: Span | None) -> Span:
    assert span is not None
    return span


def test_a_plans_span_has_its_reason_and_sizes_and_is_a_part_of_the_job() -> None:
    ended = plan(
        "Succeeded", before={"worker": "0-1"}, targets={"worker": "0-3"},
        change="worker 2 to 4", completionTime="2026-01-01T00:12:00Z",
    )  # fmt: skip
    span = sent(plan_span(job(), plan(), ended, NOW))
    assert span.parent == job_context(job()).span_id
    assert span.end - span.start == 120
    wanted = {
        "elasticjob.reason": "12 samples/s to 20",
        "elasticjob.source": "Auto",
        "elasticjob.change": "worker 2 to 4",
        "elasticjob.members.before.worker": 2,
        "elasticjob.members.after.worker": 4,
    }
    assert wanted.items() <= span.attributes.items()
    assert plan_span(job(), ended, ended, NOW) is None


@pytest.mark.parametrize("indices", ["999999-0", "0-999999,0-999999"])
def test_a_status_that_a_user_has_written_costs_a_plan_no_more_than_its_numbers(
    indices: str,
) -> None:
    ended = plan("Failed", targets={"worker": indices}, completionTime="9999-12-31T23:59:59Z")
    span = sent(plan_span(job(), plan(), ended, NOW))
    assert span.end == NOW, "no time to come: OTLP has no number for some"
    assert span.failed


def test_a_pods_span_lasts_until_its_containers_run_and_is_a_part_of_the_plan_under_way() -> None:
    span = sent(pod_span(job(), pod("Pending"), pod("Running"), (), NOW))
    assert span.parent == job_context(job()).span_id
    assert (span.start, span.end) == (parse_time(CREATED), NOW)
    assert span.attributes["elasticjob.index"] == 3
    later = pod("Running", "2026-01-01T00:10:30Z")
    span = sent(pod_span(job(), pod("Pending"), later, (plan(),), NOW))
    assert span.parent == job_context(job()).child("plan", "p").span_id
    assert pod_span(job(), pod("Running"), pod("Failed"), (), NOW) is None


def test_a_jobs_span_is_sent_at_its_end_as_a_part_of_the_span_that_has_created_it() -> None:
    given = f"{PARENT}-01"
    ended = job("Succeeded", given, completionTime="2026-01-01T00:30:00Z")
    span = sent(job_span(job(traceparent=given), ended, NOW))
    assert f"00-{span.context.trace_id}-{span.parent}" == PARENT
    assert span.end - span.start == 1800
    assert job_span(ended, ended, NOW) is None
    assert job_span(ended, None, NOW) is None
    deleted = sent(job_span(job(), None, NOW))
    assert (deleted.parent, deleted.attributes["elasticjob.phase"]) == ("", "Deleted")


def variables(traceparent: str, collector: dict[str, str]) -> dict[str, str]:
    defaults = Defaults("master:1", "master:1", collector=collector)
    body = master_pod(job(traceparent=traceparent), 0, restarts=0, defaults=defaults)
    return {each["name"]: each.get("value", "") for each in body["spec"]["containers"][0]["env"]}


def test_a_master_gets_the_collector_and_its_jobs_span_unless_the_job_is_not_sampled() -> None:
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    found = variables("", collector)
    assert found["TRACEPARENT"] == job_context(job()).header
    assert found.items() >= collector.items()
    for off in (variables("", {}), variables(f"{PARENT}-00", collector)):
        assert not {"TRACEPARENT", "OTEL_EXPORTER_OTLP_ENDPOINT"} & off.keys()
