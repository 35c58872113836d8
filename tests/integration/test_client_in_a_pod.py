"""Runs the client and the command line as in a pod, such as a notebook's.

They use the pod's service account and namespace.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
import yaml
from elasticjob.client import AsyncClient, ClientError
from elasticjob_api import names
from elasticjob_kube import access
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.operator_process import job
from tests.support.programs import ran
from tests.support.service_accounts import make_account

pytestmark = pytest.mark.thorough


@pytest.fixture
async def pod(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Create the files that the kubelet gives a pod, with an account that may read jobs.

    Return the environment.
    """
    rule = {
        "apiGroups": [names.GROUP],
        "resources": [ELASTIC_JOBS.plural],
        "verbs": ["get", "list", "create"],
    }
    file = await make_account("notebook", cluster, kube, namespace, tmp_path, rule)
    config = yaml.safe_load(file.read_text())
    (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
    (tmp_path / "ca.crt").write_bytes(
        base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    )
    (tmp_path / "namespace").write_text(namespace)
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    variables = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(cluster.port),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


async def test_a_notebook_in_the_cluster_sees_its_namespaces_jobs_without_a_kubeconfig(
    pod: dict[str, str], kube: Kube, namespace: str, tmp_path: Path
) -> None:
    await kube.create(ELASTIC_JOBS, namespace, job("mine"))
    async with AsyncClient() as client:
        found = await client.list()
    assert [(each.name, each.namespace) for each in found] == [("mine", namespace)]
    main = f"""
from pathlib import Path
from elasticjob_kube import access
access.SERVICE_ACCOUNT = Path({str(tmp_path)!r})
from elasticjob_cli.main import main
main()
"""
    done = ran(sys.executable, "-c", main, "list", "-o", "name", environment=pod)
    shown = f"{ELASTIC_JOBS.plural}.{names.GROUP}/mine\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")


async def test_a_pod_without_service_account_files_gets_an_error(
    pod: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "namespace").unlink()
    with pytest.raises(
        ClientError, match=r"no usable service account: .*/namespace can't be read: No such file"
    ):
        async with AsyncClient() as client:
            await client.list()
