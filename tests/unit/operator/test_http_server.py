"""Tests the probes and metrics of a leading and of a waiting operator.

docs/metrics.md lists the metrics.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from elasticjob_kube.access import Access
from elasticjob_kube.connection import open_http
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.controlplane.ports import free_port
from elasticjob_operator import job_metrics
from elasticjob_operator.core.partitioning import Partition
from elasticjob_operator.http_server import OperatorState, serve_http
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.work_queue import WorkQueue
from prometheus_client.parser import text_string_to_metric_families

from tests.support.documented_metrics import documented
from tests.support.served_metrics import NAMESPACE, add_job, add_pool, series


@pytest_asyncio.fixture
async def state() -> AsyncIterator[OperatorState]:
    access = Access("http://127.0.0.1:1", None, None, None)  # type: ignore[arg-type]
    async with open_http(access) as http:
        yield OperatorState(Kube(http, access, user_agent="tests", connections=1))


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_a_replica_is_alive_at_once_and_ready_when_it_can_lead(
    state: OperatorState,
) -> None:
    port = free_port()
    async with serve_http(state, port):
        assert (await get(port, "/healthz"))[0] == 200
        assert (await get(port, "/readyz"))[0] == 503
        state.ready = True
        assert await get(port, "/readyz") == (200, "waiting to lead\n")
        state.lead(Partition())
        assert await get(port, "/readyz") == (200, "leading\n")
        state.partitions = 4
        state.lead(Partition(2, 4))
        assert await get(port, "/readyz") == (200, "leading 2 of 4 partitions\n")
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(port, "/healthz")


async def test_the_documentation_lists_every_metric_with_its_type_and_labels(
    state: OperatorState,
) -> None:
    async def work(key: JobKey) -> None:
        state.kube.answers["GET", 200] += 1

    led = state.lead(Partition())
    led.queue = WorkQueue(work)
    add_job(led.store, "other", phase="Running")
    key = add_job(led.store, "job")
    add_pool(led.store, "pool", 60.0)
    with state.costs.measured(key):
        led.queue.add(key)
    await led.queue.close()
    port = free_port()
    async with serve_http(state, port):
        _, text = await get(port, "/metrics")
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("elasticjob_"):
            assert family.samples, f"{family.name} is served without a value"
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, tuple(sorted(family.samples[0].labels)))
    assert 'elasticjob_operator_rounds_total{result="done"} 1.0' in text
    assert 'elasticjob_operator_jobs{phase="New"} 1.0' in text
    assert 'elasticjob_decision_seconds_count{job_name="job",job_namespace="ns"} 1.0' in text
    state.forget(Partition())
    assert list(state.led) == []
    assert not state.costs.by_job
    kept = {family.name: family for family in state.collect()}["elasticjob_operator_rounds"]
    assert [(each.labels["result"], each.value) for each in kept.samples] == [
        ("done", 1),
        ("failed", 0),
    ]
    assert found == documented("The operator's")


async def test_a_job_has_series_until_it_is_deleted(state: OperatorState) -> None:
    store = state.lead(Partition()).store
    add_job(store, "job")
    names = {"job_namespace": NAMESPACE, "job_name": "job"}
    found = series(state)
    assert found["elasticjob_job_step"] == [(names, 3)]
    assert ({**names, "state": "ready"}, 1) in found["elasticjob_job_members"]
    assert found["elasticjob_job_plans"] == [({**names, "phase": "New"}, 1)]
    assert not found["elasticjob_job_master_ready"]
    ready = {"type": "MasterReady", "status": "True"}
    add_job(store, "lost", phase="Running", conditions=[{**ready, "status": "False"}])
    add_job(store, "led", phase="Scaling", conditions=[ready])
    masters = series(state)["elasticjob_job_master_ready"]
    assert {labels["job_name"]: value for labels, value in masters} == {"lost": 0, "led": 1}
    for each in list(store.jobs()):
        store.forget(each)
    of_jobs = [values for name, values in series(state).items() if "_job_" in name]
    assert of_jobs
    assert not any(of_jobs)


async def test_the_number_of_series_is_bounded_and_jobs_that_ended_long_ago_are_left_out_first(
    state: OperatorState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_metrics, "MAX_JOBS", 4)
    store = state.lead(Partition()).store
    for name, day in (("ended", 5), ("lately", 7), ("before", 6)):
        add_job(store, name, phase="Failed", completionTime=f"2026-01-0{day}T00:00:00Z")
    add_job(store, "newest", phase="Running", created="2026-01-04T00:00:00Z")
    add_job(store, "oldest", phase="Running", created="2026-01-02T00:00:00Z")
    add_job(store, "older", phase="Running", created="2026-01-03T00:00:00Z")
    found = series(state)
    assert [labels["job_name"] for labels, _ in found["elasticjob_job_phase"]] == [
        "oldest",
        "older",
        "newest",
        "lately",
    ]
    assert found["elasticjob_operator_jobs_without_metrics"] == [({}, 2)]


async def test_a_pool_tells_since_when_a_job_waits(state: OperatorState) -> None:
    store = state.lead(Partition()).store
    add_pool(store, "full", 300.0, 120.0)
    add_pool(store, "roomy")
    found = {name: values for name, values in series(state).items() if "_pool_" in name}
    full, roomy = ({"pool_namespace": NAMESPACE, "pool_name": name} for name in ("full", "roomy"))
    assert found == {
        "elasticjob_pool_jobs": [(full, 3), (roomy, 1)],
        "elasticjob_pool_waiting_jobs": [(full, 2), (roomy, 0)],
        "elasticjob_pool_waiting_since_timestamp_seconds": [(full, 120)],
    }


async def test_a_pool_has_series_at_the_leader_of_its_partition_alone(state: OperatorState) -> None:
    for index in range(2):
        add_pool(state.lead(Partition(index, 2)).store, "full", 300.0)
    assert len(series(state)["elasticjob_pool_jobs"]) == 1


async def test_a_port_in_use_ends_the_operator_with_the_reason(state: OperatorState) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        with pytest.raises(SystemExit, match=r"--http-port \d+: .*in use"):
            async with serve_http(state, taken.getsockname()[1]):
                pass


async def test_without_the_official_client_a_kubeconfig_is_refused_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    for module in ("kubernetes", "kubernetes.aio", "kubernetes.aio.config"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "elasticjob_kube.kubeconfig", raising=False)
    monkeypatch.delattr("elasticjob_kube.kubeconfig", raising=False)
    with pytest.raises(NoAccess, match=r"elasticjob\[kubeconfig\]"):
        async with connect(user_agent="tests"):
            pass
