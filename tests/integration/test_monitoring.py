"""Prometheus' own tool accepts the served metrics, the alerts and the dashboards' expressions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest
import yaml
from elasticjob_kube.access import Access
from elasticjob_kube.session import Kube
from elasticjob_operator.core.sharding import Shard
from elasticjob_operator.http_server import OperatorState
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.monitoring import ALERTS, DASHBOARDS, panel_expressions
from tests.support.served_metrics import add_job, masters_text, training_master
from tools.programs import find_promtool

pytestmark = pytest.mark.thorough
CASES = Path(__file__).parents[1] / "support" / "alert_cases.yaml"


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Return promtool, which is built from its Go module the first time."""
    return find_promtool(os.environ)


def accepted(promtool: Path, *arguments: str | Path, given: str = "") -> None:
    done = subprocess.run(
        [promtool, *arguments], input=given, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr or arguments[0] == "test", done.stderr


async def test_a_masters_metrics_are_named_by_prometheus_conventions(promtool: Path) -> None:
    accepted(promtool, "check", "metrics", given=masters_text(training_master()))


async def test_the_operators_metrics_are_named_by_prometheus_conventions(promtool: Path) -> None:
    async with aiohttp.ClientSession() as http:
        access = Access("http://127.0.0.1:1", None, None, None)  # type: ignore[arg-type]
        state = OperatorState(Kube(http, access, user_agent="tests", connections=1))
        key = add_job(state.lead(Shard()).store, "job")
        with state.costs.measured(key):
            pass
        registry = CollectorRegistry()
        registry.register(state)
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
