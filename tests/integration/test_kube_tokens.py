"""Checks that a session follows the kubelet when it replaces an expiring token."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml
from elasticjob_kube import access
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import PODS, SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster.cluster import Cluster

from tests.support.wait import until

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
POD_NAME = "authentication.kubernetes.io/pod-name"


@pytest.mark.guarantee("only-the-job-reaches-its-master")
@pytest.mark.thorough
async def test_a_session_continues_with_the_replaced_token(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token is bound to its pod. Deleting the pod ends it sooner than after its ten minutes."""
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(access, "TOKEN_SECONDS", 0.1)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.port))
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(authority))
    (tmp_path / "token").write_text(await _token(kube, namespace, "first"))

    async with connect(user_agent="elasticjob-tests") as session:

        async def holder() -> str:
            """Return the pod to which the session's token is bound, or the rejection."""
            try:
                answer = json.loads(await session.request("POST", REVIEWS, body={}))
            except Refused as error:
                return f"refused: {error.status}"
            pod: str = answer["status"]["userInfo"]["extra"][POD_NAME][0]
            return pod

        async def ended() -> bool:
            return await holder() == "refused: 401"

        async def renewed() -> bool:
            return await holder() == "second"

        assert await holder() == "first"
        await kube.delete(PODS, namespace, "first", grace_seconds=0)
        await until("the token has ended", ended)
        (tmp_path / "token").write_text(await _token(kube, namespace, "second"))
        await until("the next token is used", renewed)


async def _token(kube: Kube, namespace: str, pod: str) -> str:
    """Create a pod, and request a token that is bound to it, as the kubelet does."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = await kube.create(PODS, namespace, {"metadata": {"name": pod}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": made["metadata"]["uid"]}
    body = {"spec": {"expirationSeconds": 600, "boundObjectRef": bound}}
    path = SERVICE_ACCOUNTS.path(namespace, "default", "token")
    token: str = json.loads(await kube.request("POST", path, body=body))["status"]["token"]
    return token
