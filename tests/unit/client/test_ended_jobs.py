"""A job that has ended is not changed any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_client.answers import open_master_or_report, stored_master
from elasticjob_client.errors import JobEnded, MasterUnavailable
from elasticjob_client.jobs import set_run_policy
from elasticjob_client.waiting import wait_for

from tests.support.played_api import PlayedApi, of_job, played_job


async def test_a_job_that_has_ended_is_not_suspended(tmp_path: Path) -> None:
    api = PlayedApi(of_job(played_job("Succeeded")))
    async with api.cluster(tmp_path) as cluster:
        with pytest.raises(JobEnded, match="job ns/a has ended, as Succeeded"):
            await set_run_policy(cluster, "a", suspend=True)
    assert api.requests == ["GET elasticjobs/a"]


@pytest.mark.parametrize(
    ("phase", "waits_for"),
    [
        ("Succeeded", "nothing, as the job has ended"),
        ("Suspended", "the world to train, which is waiting"),
    ],
)
async def test_the_auto_scaler_of_a_job_that_has_ended_waits_for_nothing(
    tmp_path: Path, phase: str, waits_for: str
) -> None:
    last = job_pb2.Autoscaling(enabled=True, waiting_for="the world to train, which is waiting")
    stored = job_pb2.StoredAnswers(job_uid="u", autoscaling=last)
    api = PlayedApi(of_job(played_job(phase), stored))
    async with api.cluster(tmp_path) as cluster:
        found = await stored_master(cluster, "a", MasterUnavailable("it has no master"))
    assert (await found.get("Autoscaling")).waiting_for == waits_for


async def test_the_end_of_a_job_is_one_line_with_the_last_line_of_its_traceback(
    tmp_path: Path,
) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no luck'
    job = played_job("Failed", message=f"worker 0 failed: {trace}")
    api = PlayedApi(of_job(job, job_pb2.StoredAnswers(job_uid="u")))
    end = (
        "job ns/a has ended, as Failed: worker 0 failed: Traceback (most recent call last): … "
        "ValueError: no luck"
    )
    async with api.cluster(tmp_path) as cluster:
        found = await stored_master(cluster, "a", MasterUnavailable("it has no master"))
        assert found.why.startswith(f"{end}; this is as of ")
        with pytest.raises(JobEnded) as ended:
            await wait_for(cluster, "a", "succeeded")
    assert str(ended.value) == end


async def test_a_query_reads_the_job_once_to_find_its_master_and_once_for_its_end(
    tmp_path: Path,
) -> None:
    api = PlayedApi(of_job(played_job("Succeeded"), job_pb2.StoredAnswers(job_uid="u")))
    async with api.cluster(tmp_path) as cluster, open_master_or_report(cluster, "a"):
        pass
    assert api.requests.count("GET elasticjobs/a") == 2
