"""The alerts and dashboards of the chart ask only for what operator and masters serve."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.documented_metrics import PAGE, documented
from tests.support.monitoring import CASES, DASHBOARDS, alerts, panel_expressions

SERVED = documented("The operator's") | documented("A master's")
ADDED = {"namespace", "pod", "job_namespace", "job_name"}
"""Labels that the chart's ServiceMonitor and PodMonitor add."""
_METRIC = re.compile(r"\belasticjob_\w+")
_LABELS = re.compile(r"\bby \(([^)]*)\)")
_MATCHERS = re.compile(r"(\w+)(?:=~|!~|!=|=)\"")


def unserved(expression: str) -> set[str]:
    """Return the metrics and labels of an expression that are not served."""
    named = {
        re.sub("_(sum|count)$", "", name) if name not in SERVED else name
        for name in _METRIC.findall(expression)
    }
    assert named, f"no metric in {expression}"
    labels = {name for group in _LABELS.findall(expression) for name in re.split(r",\s*", group)}
    labels |= set(_MATCHERS.findall(expression))
    known = ADDED.union(*(SERVED[name][1] for name in named & SERVED.keys()))
    return (named - SERVED.keys()) | (labels - known)


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_served_metrics_and_is_documented(rule: dict[str, str]) -> None:
    assert not unserved(rule["expr"])
    expression = rule["expr"].replace("|", r"\|")
    row = f"| `{rule['alert']}` | `{expression}` | {rule.get('for', '')} |"
    assert row in PAGE.read_text()


def test_the_cases_for_promtool_have_only_served_series_and_fire_each_alert() -> None:
    well, wrong, *_ = yaml.safe_load(CASES.read_text())["tests"]
    for case in (well, wrong):
        assert not [each for each in case["input_series"] if unserved(each["series"])]
    (fired,) = wrong["promql_expr_test"]
    names = {each["labels"] for each in fired["exp_samples"]}
    assert names == {f'{{alertname="{rule["alert"]}"}}' for rule in alerts()}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_served_metrics(dashboard: Path) -> None:
    board = json.loads(dashboard.read_text())
    variables = [
        each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"
    ]
    expressions = [*panel_expressions(dashboard), *variables]
    assert expressions
    assert [(each, unserved(each)) for each in expressions if unserved(each)] == []


def test_an_expression_with_a_metric_or_label_that_nobody_serves_is_found() -> None:
    assert unserved('sum by (color) (elasticjob_gone{phase="x"})') == {
        "elasticjob_gone",
        "color",
        "phase",
    }
