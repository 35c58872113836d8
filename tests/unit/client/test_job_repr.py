"""Interpreters and notebooks show a job."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus, Progress
from elasticjob_api.meta import ObjectMeta
from elasticjob_client.job_repr import job_html, job_text

PROGRESS = Progress(step=5, total_steps=10, steps="5/10", rate="12/s", eta="3m")
JOB = ElasticJob(
    metadata=ObjectMeta(name="a", namespace="n"),
    spec=ElasticJobSpec(framework="jax", replica_specs={}),
    status=ElasticJobStatus(
        phase="Running", workers="2/2", progress=PROGRESS, message="<b>&", restarts=1
    ),
)


def test_repr_is_one_line() -> None:
    assert (
        job_text("Job", JOB) == "<Job n/a: Running, 2/2 workers, step 5/10, 12/s, 3m, 1 restarts>"
    )
    assert job_text("Job", ElasticJob(metadata=JOB.metadata, spec=JOB.spec)) == "<Job n/a: Pending>"


def test_html_has_a_progress_bar_and_escapes_the_texts_of_the_job() -> None:
    page = job_html(JOB, note="<away>")
    assert "<progress value='5' max='10'" in page
    assert "&lt;b&gt;&amp;" in page
    assert "&lt;away&gt;" in page
