"""Tests that traces are off without a collector, and harm nothing where they cannot be sent."""

from __future__ import annotations

import sys

import pytest
from elasticjob_api.traces import Span, context_of_job
from elasticjob_kube.trace_export import TraceExport

from tests.support.programs import python

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SPAN = Span("plan", context_of_job("j", ""), "", 1.0, 2.0)


@pytest.mark.parametrize("program", ["elasticjob_operator.leader", "elasticjob_master.main"])
def test_a_program_without_a_collector_loads_nothing_of_opentelemetry(program: str) -> None:
    code = (
        f"import sys, {program}; from elasticjob_kube.trace_export import TraceExport\n"
        "export = TraceExport('s', {'OTEL_EXPORTER_OTLP_ENDPOINT': ''}); export.close()\n"
        "assert not export.is_on\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    assert python(code).returncode == 0


@pytest.mark.guarantee("collector-lost")
def test_without_the_packages_a_warning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    export = TraceExport("s", {ENDPOINT: "http://127.0.0.1:1"})
    export.send(SPAN)
    export.close()
    assert "install elasticjob[otel]" in caplog.text


def test_a_variable_with_an_impossible_value_turns_traces_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    export = TraceExport("s", {ENDPOINT: "http://127.0.0.1:1"})
    assert not export.is_on
    assert "OTEL_*" in caplog.text


@pytest.mark.guarantee("collector-lost")
def test_a_full_queue_drops_spans_and_the_program_goes_on() -> None:
    # In a process of its own, because the thread that sends tries again until its process ends.
    # Its random pauses would fail a later test that Hypothesis runs.
    code = (
        "from elasticjob_kube.trace_export import TraceExport\n"
        "from tests.unit.kube.test_trace_export import SPAN\n"
        f"export = TraceExport('s', {{'{ENDPOINT}': 'http://127.0.0.1:1'}})\n"
        "for _ in range(1000): export.send(SPAN)\n"
        "assert export.is_on\n"
        "export.close()"
    )
    queue = {"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"}
    assert python(code, **queue, **{ENDPOINT: "http://127.0.0.1:1"}).returncode == 0
