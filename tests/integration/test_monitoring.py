"""A real Prometheus scrapes operator and masters, and answers the dashboards.

Its tool checks the metrics' names and the alerts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from elasticjob_kube.access import Access
from elasticjob_kube.connection import open_http
from elasticjob_kube.session import Kube
from elasticjob_localcluster.controlplane.ports import free_port
from elasticjob_operator.core.partitioning import Partition
from elasticjob_operator.http_server import OperatorState, serve_http
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.work_queue import WorkQueue
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.master_process import Master
from tests.support.monitoring import ALERTS, CASES, DASHBOARDS, panel_expressions
from tests.support.programs import ran
from tests.support.served_app import served_app
from tests.support.served_metrics import NAMESPACE, add_job, add_pool, masters_text, training_master
from tests.support.wait import until
from tools.programs import find_prometheus

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """Return Prometheus and promtool, which are built from their Go module the first time."""
    if not os.environ.get("ELASTICJOB_TEST_PROMETHEUS"):
        pytest.skip("ELASTICJOB_TEST_PROMETHEUS=1 runs it; the first time builds it: 10 minutes")
    return find_prometheus(os.environ)


@pytest.fixture
def promtool(programs: dict[str, Path]) -> Path:
    return programs["promtool"]


@pytest_asyncio.fixture
async def operator() -> AsyncIterator[OperatorState]:
    """Return the state of an operator that leads and has reconciled one job."""
    access = Access("http://127.0.0.1:1", None, None, None)  # type: ignore[arg-type]
    async with open_http(access) as http:
        state = OperatorState(Kube(http, access, user_agent="tests", connections=1))
        state.kube.answers["GET", 200] += 1
        led = state.lead(Partition())
        key = add_job(led.store, "job")
        add_pool(led.store, "pool", 60.0)
        with state.costs.measured(key):
            led.queue = WorkQueue(_no_work)
        yield state


async def _no_work(_: JobKey) -> None:
    pass


def accepted(promtool: Path, *arguments: str | Path, given: str = "") -> None:
    done = ran(promtool, *arguments, given=given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr or arguments[0] == "test", done.stderr


async def test_a_masters_metrics_are_named_by_prometheus_conventions(promtool: Path) -> None:
    accepted(promtool, "check", "metrics", given=masters_text(training_master()))


async def test_the_operators_metrics_are_named_by_prometheus_conventions(
    promtool: Path, operator: OperatorState
) -> None:
    registry = CollectorRegistry()
    registry.register(operator)
    accepted(promtool, "check", "metrics", given=generate_latest(registry).decode())


def test_the_alerts_fire_when_they_should(promtool: Path, tmp_path: Path) -> None:
    accepted(promtool, "check", "rules", ALERTS)
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(CASES, tmp_path)
    accepted(promtool, "test", "rules", tmp_path / CASES.name)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_prometheus_parses_each_expression_of_a_dashboard(
    promtool: Path, dashboard: Path, tmp_path: Path
) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(panel_expressions(dashboard))
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    accepted(promtool, "check", "rules", file)


@asynccontextmanager
async def serving(text: str) -> AsyncIterator[int]:
    """Serve a text at /metrics; yield the port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=text)

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    async with served_app(application) as port:
        yield port


def configuration(*, operator: int, master: int, job: int) -> str:
    """Return the configuration of a Prometheus that scrapes these ports."""
    labels = {"job_namespace": NAMESPACE, "job_name": "job"}

    def scrape(name: str, port: int, **more: object) -> dict[str, object]:
        targets = [{"targets": [f"127.0.0.1:{port}"], "labels": labels if name == "job" else {}}]
        return {"job_name": name, "static_configs": targets, **more}

    of_master = {"scheme": "https", "tls_config": {"insecure_skip_verify": True}}
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                scrape("operator", operator),
                scrape("master", master, **of_master),
                scrape("job", job),
            ],
        }
    )


async def test_a_real_prometheus_scrapes_all_and_answers_each_panel_of_the_dashboards(
    programs: dict[str, Path], operator: OperatorState, master: Master, tmp_path: Path
) -> None:
    own = free_port()
    prometheus_port = free_port()
    file = tmp_path / "prometheus.yaml"
    command: list[str | Path] = [
        programs["prometheus"],
        f"--config.file={file}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{prometheus_port}",
    ]
    async with (
        serve_http(operator, own),
        serving(masters_text(training_master())) as job,
        aiohttp.ClientSession(f"http://127.0.0.1:{prometheus_port}") as http,
    ):
        file.write_text(configuration(operator=own, master=master.http_port, job=job))
        with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:

            async def ask(expression: str) -> list[object]:
                try:
                    query = {"query": expression}
                    async with http.get("/api/v1/query", params=query) as response:
                        if response.status == 503:
                            return []  # it reads its storage
                        answer = await response.json()
                except aiohttp.ClientConnectorError:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    return []
                assert answer["status"] == "success", answer
                found: list[object] = answer["data"]["result"]
                return found

            async def all_up() -> bool:
                return len(await ask("up == 1")) == 3

            async def empty() -> list[str]:
                expressions = [each for board in DASHBOARDS for each in panel_expressions(board)]
                # A comparison has an answer only where something is wrong.
                asked = [each for each in expressions if not re.search(r"(== 1|> 0)$", each)]
                return [each for each in asked if not await ask(each)]

            try:
                await until("all three are scraped", all_up)
                await until("each panel has a value", empty, lambda left: not left)
            finally:
                process.terminate()
