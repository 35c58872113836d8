"""A pod's service account, as a kubeconfig with a token that is bound to the pod and renewed in time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from elasticjob_cli.node.model import Json, Pod, seconds_of
from elasticjob_kube.resources import SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube

_LIFETIME = 3607
_RENEW_AT = 0.8


class ApiServer(NamedTuple):
    """Where the API server is and who vouches for it."""

    url: str
    authority_data: str
    """Base64 of PEM."""


async def request_token(kube: Kube, pod: Pod, file: Path) -> float:
    """Write a new token of the pod's service account to a file; return when to ask for the next."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _LIFETIME, "boundObjectRef": bound},
    }
    account = pod.spec.get("serviceAccountName") or "default"
    path = SERVICE_ACCOUNTS.path(pod.metadata.namespace, account, "token")
    status = msgspec.json.decode(await kube.request("POST", path, body=body))["status"]
    write_private(file, status["token"].encode())
    now = time.time()
    return now + _RENEW_AT * (seconds_of(status["expirationTimestamp"]) - now)


def kubeconfig(api: ApiServer, namespace: str, token_file: Path) -> Json:
    """Return a kubeconfig that reads its token from a file, so that a renewed token is used at once."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {"server": api.url, "certificate-authority-data": api.authority_data}}],
        "users": [{"name": "pod", "user": {"tokenFile": str(token_file)}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}],
    }


def write_private(file: Path, data: bytes) -> None:
    """Replace a file at once; only its owner can read it."""
    new = file.with_name(file.name + ".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(data)
    new.replace(file)
