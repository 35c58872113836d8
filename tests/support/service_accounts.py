"""Uses service accounts in tests of rights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
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


async def make_account(
    name: str, cluster: Cluster, kube: Kube, namespace: str, folder: Path, *rules: Json
) -> Path:
    """Create an account with these rights in its namespace; return a kubeconfig of it."""
    named: Json = {"metadata": {"name": name}}
    await kube.create(SERVICE_ACCOUNTS, namespace, named)
    if rules:
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": name}
        await kube.create(ROLES, namespace, named | {"rules": rules})
        await kube.create(
            ROLE_BINDINGS, namespace, named | {"subjects": [subject], "roleRef": role}
        )
    return await kubeconfig_of(name, cluster, kube, namespace, folder)


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
