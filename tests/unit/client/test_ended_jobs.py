"""A job that has ended is not changed any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_client.errors import JobEnded
from elasticjob_client.jobs import set_run_policy

from tests.support.played_api import PlayedApi


async def test_a_job_that_has_ended_is_not_suspended(tmp_path: Path) -> None:
    job = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {"phase": "Succeeded"},
    }
    api = PlayedApi({"GET elasticjobs/a": job, "PATCH elasticjobs/a": job})
    async with api.cluster(tmp_path) as cluster:
        with pytest.raises(JobEnded, match="job ns/a has ended, as Succeeded"):
            await set_run_policy(cluster, "a", suspend=True)
    assert api.requests == ["GET elasticjobs/a"]
