"""Writes a kubeconfig for a pod's service account, with a token that is bound to the pod."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import SERVICE_ACCOUNTS
from elasticjob_kube.retry import retry
from elasticjob_kube.session import Kube

from elasticjob_localcluster.kubeconfig_file import write_kubeconfig, write_private
from elasticjob_localcluster.node.environment import ConfigError
from elasticjob_localcluster.node.pod_model import Pod

KUBECONFIG = "kubeconfig"
"""The name of the file in the pod's directory."""
BINDING_PAUSES_SECONDS = (0.01, 0.03, 0.1, 0.3)
"""The pauses between retries after a refusal. The API server allows a node to read the Secrets and
to request the tokens of its pods some milliseconds after their binding.
"""
_LIFETIME = 3607
_RENEW_AT = 0.8


class ApiServer(NamedTuple):
    """The API server's address and certificate authority."""

    url: str
    authority_data: str
    """Base64 of PEM."""


async def write_token(kube: Kube, api: ApiServer, pod: Pod, directory: Path) -> float:
    """Write a new token and a kubeconfig that names it to a pod's directory.

    Return the time of its renewal, in seconds since the epoch. Raises ConfigError if the API server
    refuses a token.
    """
    token = directory / "token"
    try:
        due = await _request_token(kube, pod, token)
    except (Refused, NotFound) as error:
        raise ConfigError(f"no token for the pod's service account: {error}") from error
    write_kubeconfig(
        directory / KUBECONFIG,
        server=api.url,
        authority=api.authority_data,
        # The token is read from its file for each use, so that a renewed one is used at once.
        user={"tokenFile": str(token)},
        namespace=pod.metadata.namespace,
    )
    return due


async def _request_token(kube: Kube, pod: Pod, file: Path) -> float:
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _LIFETIME, "boundObjectRef": bound},
    }
    account = pod.spec.get("serviceAccountName") or "default"
    path = SERVICE_ACCOUNTS.path(pod.metadata.namespace, account, "token")
    answer = await retry(
        lambda: kube.request("POST", path, body=body),
        (Refused, NotFound),
        pauses=BINDING_PAUSES_SECONDS,
    )
    status = msgspec.json.decode(answer)["status"]
    write_private(file, status["token"].encode())
    now = time.time()
    return now + _RENEW_AT * (parse_time(status["expirationTimestamp"]) - now)
