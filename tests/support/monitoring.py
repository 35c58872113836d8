"""Reads the alerts and dashboards of the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "chart" / "monitoring"
ALERTS = FOLDER / "alerts.yaml"
CASES = Path(__file__).with_name("alert_cases.yaml")
DASHBOARDS = sorted(FOLDER.glob("dashboard-*.json"))


def alerts() -> list[dict[str, Any]]:
    """Return the alerting rules."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panel_expressions(dashboard: Path) -> list[str]:
    """Return the expressions of a dashboard's panels, with values in place of its variables."""
    values = {"namespace": "ns", "job": "job"}
    board = json.loads(dashboard.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = {each["name"] for each in board["templating"]["list"]}
    for name in variables & values.keys():
        expressions = [each.replace(f"${name}", values[name]) for each in expressions]
    assert not any("$" in each for each in expressions), "a variable that the dashboard has not"
    return expressions
