"""Uses service accounts in tests of rights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster


async def kubeconfig_of(
    account: str, cluster: Cluster, kube: Kube, namespace: str, folder: Path
) -> Path:
    """Write a kubeconfig that contains only a token of an account, as the account's pod has it."""
    answer = await kube.request(
        "POST", SERVICE_ACCOUNTS.path(namespace, account, "token"), body={"spec": {}}
    )
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": json.loads(answer)["status"]["token"]}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def not_forbidden(session: Kube, attempts: Iterable[tuple[str, str, str, Any]]) -> list[str]:
    """Send requests, each given as a description, method, path and body.

    Return those not answered with 403.
    """
    found = []
    for what, method, path, body in attempts:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            await session.request(method, path, body=body, content_type=content_type)
        except Refused as error:
            if error.status != 403:
                found.append(f"{what}: {error.status} {error}")
        else:
            found.append(what)
    return found
