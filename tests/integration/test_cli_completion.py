"""Completes shell words from a real API server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.operator_process import job
from tests.support.programs import ran
from tests.support.thorough import some_of

COMMAND = Path(sys.executable).with_name("elasticjob")


def completed(line: str, kubeconfig: Path) -> list[str]:
    """Return bash's completions for a line at which the user presses the tabulator key."""
    asked = {
        "_ELASTICJOB_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "KUBECONFIG": str(kubeconfig),
    }
    done = ran(COMMAND, environment=os.environ | asked)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "found"),
    some_of(
        [
            pytest.param("elasticjob scale -n {} ", ["alpha", "job"]),
            pytest.param("elasticjob scale -n {} job --remove job-", ["job-worker-0"]),
            pytest.param("elasticjob logs -n {} nothing --role ", []),
            pytest.param("elasticjob describe -n {} a", ["alpha"]),
            pytest.param("elasticjob scale -n {} job 3 --role w", ["worker"]),
            pytest.param("elasticjob exec -n {} job --pod job-w", ["job-worker-0"]),
            pytest.param("elasticjob res", ["resume"]),
        ],
        first=3,
    ),
)
async def test_names_of_jobs_roles_and_pods_are_completed(
    cluster: Cluster, kube: Kube, namespace: str, line: str, found: list[str]
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job("alpha"))
    created = await kube.create(ELASTIC_JOBS, namespace, job("job"))
    status = {"replicaStatuses": {"worker": {"desired": 1, "highestIndex": 0, "incarnations": 1}}}
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"status": status}, subresource="status")
    await kube.create(PODS, namespace, pod(created["metadata"]["uid"]))
    assert completed(line.format(namespace), cluster.kubeconfig) == found


def test_without_a_cluster_nothing_is_completed_or_printed(tmp_path: Path) -> None:
    assert completed("elasticjob describe ", tmp_path / "none") == []


def pod(uid: str) -> Json:
    labels = {names.LABEL_JOB_UID: uid, names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0"}
    containers = [{"name": "train", "image": "train:1"}]
    kind = {"apiVersion": names.API_VERSION, "kind": "ElasticJob"}
    owner = {**kind, "name": "job", "uid": uid, "controller": True}
    return {
        "metadata": {"name": "job-worker-0", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": containers},
    }
