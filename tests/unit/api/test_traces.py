"""Tests the identifiers of a job's trace."""

from __future__ import annotations

import pytest
from elasticjob_api.traces import context_of_job, parse_context

UID = "0aa1b2c3-d4e5-4678-9abc-def012345678"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def test_a_jobs_trace_is_its_uid_for_every_program() -> None:
    context = context_of_job(UID, "")
    assert context.trace_id == UID.replace("-", "")
    assert context.sampled
    assert parse_context(context.header) == context
    assert context_of_job(UID, "") == context
    spans = {context.span_id, context.child("pod", "1").span_id, context.child("plan", "1").span_id}
    assert len(spans) == 3


def test_a_job_belongs_to_the_trace_that_its_annotation_names() -> None:
    context = context_of_job(UID, f"00-{TRACE}-{SPAN}-01")
    assert context.trace_id == TRACE
    assert context.span_id != SPAN
    assert not context_of_job(UID, f"00-{TRACE}-{SPAN}-00").sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 100_000,
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
    ],
)
def test_a_text_that_is_no_traceparent_counts_as_missing(text: str) -> None:
    assert parse_context(text) is None
    assert context_of_job(UID, text) == context_of_job(UID, "")


@pytest.mark.parametrize("uid", ["", "j", "0" * 32, "x" * 200])
def test_a_job_with_any_uid_has_a_valid_trace(uid: str) -> None:
    context = context_of_job(uid, "")
    assert parse_context(context.header) == context
