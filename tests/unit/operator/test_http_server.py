"""Tests the probes and metrics of a leading and of a waiting operator.

docs/install.md lists the metrics.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from elasticjob_kube.access import Access
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube, connect
from elasticjob_operator.core.sharding import Shard
from elasticjob_operator.http_server import OperatorState, serve_http
from elasticjob_operator.store import JobKey
from elasticjob_operator.work_queue import WorkQueue
from prometheus_client.parser import text_string_to_metric_families

DOCUMENT = Path(__file__).parents[3] / "docs" / "install.md"
ROW = re.compile(
    r"^\| `(elasticjob_\w+)` \| (gauge|counter|summary) \| (.*?) \| .+ \|$", re.MULTILINE
)


@pytest_asyncio.fixture
async def state() -> AsyncIterator[OperatorState]:
    async with aiohttp.ClientSession() as http:
        kube = Kube(
            http,
            Access("http://127.0.0.1:1", None, None, None),  # type: ignore[arg-type]
            user_agent="tests",
            connections=1,
        )
        yield OperatorState(kube)


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port


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
        state.lead(Shard())
        assert await get(port, "/readyz") == (200, "leading\n")
        state.shards = 4
        state.lead(Shard(2, 4))
        assert await get(port, "/readyz") == (200, "leading 2 of 4 shards\n")
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(port, "/healthz")


async def test_the_documentation_lists_every_metric_with_its_type_and_labels(
    state: OperatorState,
) -> None:
    async def work(key: JobKey) -> None:
        state.kube.answers["GET", 200] += 1

    led = state.lead(Shard())
    led.queue = WorkQueue(work)
    metadata = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    role = {"template": {"spec": {"containers": [{"name": "c", "image": "i", "command": ["c"]}]}}}
    spec = {"framework": "custom", "replicaSpecs": {"worker": role}}
    key = led.store.update(ELASTIC_JOBS, {"metadata": metadata, "spec": spec})
    assert key is not None
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
    state.forget(Shard())
    assert list(state.led) == []
    assert not state.costs.by_job
    kept = {family.name: family for family in state.collect()}["elasticjob_operator_rounds"]
    assert [(each.labels["result"], each.value) for each in kept.samples] == [
        ("done", 1),
        ("failed", 0),
    ]
    listed = ROW.findall(DOCUMENT.read_text())
    assert found == {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in listed
    }


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
