"""Operator and masters send one trace of a job to a real collector of OpenTelemetry."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS

from tests.support.collector import run_collector
from tests.support.e2e.sandbox import new_sandbox
from tests.support.e2e.scaling_jobs import job
from tests.support.e2e.target_cluster import TargetCluster
from tests.support.wait import until
from tools.programs import find_collector

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("the collector is on this machine")]
SECONDS = 120.0


async def test_a_real_collector_gets_one_trace_from_a_jobs_creation_to_each_worlds_first_step(
    cluster: TargetCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.environ.get("ELASTICJOB_TEST_COLLECTOR"):
        pytest.skip("ELASTICJOB_TEST_COLLECTOR=1 runs it; the first time builds it: some minutes")
    async with run_collector(find_collector(os.environ), tmp_path) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        async with new_sandbox(cluster) as sandbox:
            sandbox.apply(job("traced", folder))
            wanted = partial(until, explain=collector.shown, seconds=SECONDS)
            await wanted("a first step", lambda: collector.named("first step"))
            found = await sandbox.kube.get(ELASTIC_JOBS, sandbox.namespace, "traced")
            uid = found["metadata"]["uid"]
            sandbox.kubectl("scale", "ej/traced", "--replicas=2")
            await wanted("the plan", lambda: collector.named("plan"))
            two = "the first step of two workers"
            await wanted(two, lambda: collector.named("first step"), lambda each: len(each) > 1)
            (folder / "finish").touch()
            await wanted("the job's end", lambda: collector.named("job"))
    spans = {each.span["spanId"]: each for each in collector.spans}
    assert {each.span["traceId"] for each in spans.values()} == {uid.replace("-", "")}
    assert len(spans) == len(collector.spans), "a span was sent twice"
    first, second = collector.named("first step")
    assert collector.path(first) == ["job", "world", "first step"], collector.shown("")
    assert collector.path(second) == ["job", "plan", "world", "first step"], collector.shown("")
    (plan,) = collector.named("plan")
    assert plan.service == "elasticjob-operator"
    assert plan.attributes["elasticjob.members.before.worker"] == "1"
    assert plan.attributes["elasticjob.members.after.worker"] == "2"
    assert plan.attributes["elasticjob.source"] == "Spec"
    world = spans[second.parent]
    assert world.service == "elasticjob-master"
    assert world.attributes["elasticjob.members.before"] == "1"
    assert world.attributes["elasticjob.members.after"] == "2"
    assert plan.attributes["elasticjob.reason"] in world.attributes["elasticjob.reason"]
    agents = {each.attributes["k8s.pod.name"]: each for each in collector.named("agent")}
    assert collector.path(agents["traced-worker-0"]) == ["job", "pod", "agent"]
    assert collector.path(agents["traced-worker-1"]) == ["job", "plan", "pod", "agent"]
