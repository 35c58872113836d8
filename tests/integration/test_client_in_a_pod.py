"""Runs the client and the command line as in a pod, such as a notebook's.

They use the pod's service account and namespace.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from elasticjob.client import AsyncClient, ClientError
from elasticjob_api import names
from elasticjob_kube import access
from elasticjob_kube.resources import ELASTIC_JOBS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.service_accounts import kubeconfig_of

pytestmark = pytest.mark.thorough


@pytest.fixture
async def pod(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Create the files that the kubelet gives a pod, with an account that may read jobs.

    Return the environment.
    """
    account = {"metadata": {"name": "notebook"}}
    rule = {
        "apiGroups": [names.GROUP],
        "resources": [ELASTIC_JOBS.plural],
        "verbs": ["get", "list", "create"],
    }
    subject = {"kind": "ServiceAccount", "name": "notebook", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "notebook"}
    await kube.create(SERVICE_ACCOUNTS, namespace, account)
    await kube.create(ROLES, namespace, account | {"rules": [rule]})
    await kube.create(ROLE_BINDINGS, namespace, account | {"subjects": [subject], "roleRef": role})
    config = yaml.safe_load(
        (await kubeconfig_of("notebook", cluster, kube, namespace, tmp_path)).read_text()
    )
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
    template = {
        "spec": {"containers": [{"name": "train", "image": "train:1", "command": ["train"]}]}
    }
    spec = {"framework": "jax", "replicaSpecs": {"worker": {"template": template}}}
    job = {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": "mine"},
        "spec": spec,
    }
    await kube.create(ELASTIC_JOBS, namespace, job)
    async with AsyncClient() as client:
        assert [(each.name, each.namespace) for each in await client.list()] == [
            ("mine", namespace)
        ]
    main = f"""
from pathlib import Path
from elasticjob_kube import access
access.SERVICE_ACCOUNT = Path({str(tmp_path)!r})
from elasticjob_cli.main import main
main()
"""
    command = [sys.executable, "-c", main, "list", "-o", "name"]
    ran = subprocess.run(command, env=pod, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        0,
        f"{ELASTIC_JOBS.plural}.{names.GROUP}/mine\n",
        "",
    )


async def test_a_pod_without_service_account_files_gets_an_error(
    pod: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "namespace").unlink()
    with pytest.raises(
        ClientError, match=r"no usable service account: .*/namespace can't be read: No such file"
    ):
        async with AsyncClient() as client:
            await client.list()
