"""Renders a job for interpreters and notebooks. Pure."""

from __future__ import annotations

from html import escape

from elasticjob_api.elasticjob import ElasticJob

_BAR_PIXELS = 240


def job_text(kind: str, job: ElasticJob) -> str:
    """Return the text of a job for `repr`."""
    where = f"{job.metadata.namespace}/{job.metadata.name}"
    return f"<{kind} {where}: {', '.join(text for _, text in _facts(job))}>"


def job_html(job: ElasticJob, *, note: str = "") -> str:
    """Return the HTML of a job for notebooks; `note` says why the job may be outdated."""
    progress = job.status.progress
    rows = [
        ("Job", f"{job.metadata.namespace}/{job.metadata.name}"),
        ("Framework", job.spec.framework),
        *_facts(job),
    ]
    if job.status.message:
        rows.append(("Message", job.status.message))
    if note:
        rows.append(("Outdated", note))
    left = "style='text-align:left'"
    cells = "".join(
        f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(text)}</td></tr>"
        for name, text in rows
    )
    bar = ""
    if progress is not None and progress.total_steps:
        width = f"style='width:{_BAR_PIXELS}px'"
        bar = f"<progress value='{progress.step}' max='{progress.total_steps}' {width}></progress>"
    return f"<table>{cells}</table>{bar}"


def _facts(job: ElasticJob) -> list[tuple[str, str]]:
    status = job.status
    progress = job.status.progress
    found: list[tuple[str, str]] = [("Phase", status.phase or "Pending")]
    if status.workers:
        found.append(("Workers", f"{status.workers} workers"))
    if progress is not None:
        found.append(("Step", f"step {progress.steps or progress.step}"))
        found += [
            (name, text)
            for name, text in (("Rate", progress.rate), ("To go", progress.eta))
            if text
        ]
    if status.restarts:
        found.append(("Restarts", f"{status.restarts} restarts"))
    return found
