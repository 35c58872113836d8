"""The life of the operator's process, by kopf.

Signals, what comes first, and what is finished at the end. kopf watches nothing here. Its watches
decode with Python's json, whose depth is bounded by the stack: one deeply nested object of one user
ended the operator, and each of its restarts. Nor do they report deletions that happen while they
are broken. Its handlers of resources would keep their progress in annotations of users' objects,
while at rest the operator writes nothing (docs/guarantees.md). So all watches are informers of
ours, and work queue, retries, leader election and events are our own, too.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import kopf

Activity = Callable[[], Awaitable[None]]


async def run_until_signalled(
    *, begin: Activity, finish: Activity, identity: str, namespace: str | None
) -> None:
    """Run `begin`, wait for SIGTERM or SIGINT, run `finish`, and return.

    A signal that comes before `begin` is done ends it. If this is cancelled, `finish` may be left
    out.
    """
    await kopf.operator(
        registry=_registry(begin, finish),
        settings=_settings(),
        standalone=True,
        # kopf's default looks the user up in /etc/passwd, where a container's user need not be.
        identity=identity,  # type: ignore[arg-type]
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace else [],
    )


def _settings() -> kopf.OperatorSettings:
    """Return settings under which kopf writes nothing to the cluster, and looks at it only once."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    return chosen


def _registry(begin: Activity, finish: Activity) -> kopf.OperatorRegistry:
    created = kopf.OperatorRegistry()
    kopf.on.login(registry=created)(_login)

    # kopf retries an activity that fails; these are not to be repeated.
    @kopf.on.startup(registry=created, errors=kopf.ErrorsMode.PERMANENT)
    async def startup(**_: Any) -> None:
        await begin()

    @kopf.on.cleanup(registry=created, errors=kopf.ErrorsMode.PERMANENT)
    async def cleanup(**_: Any) -> None:
        await finish()

    return created


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in as the operator's own session does.

    By a kubeconfig if one is named, else by the service account.
    """
    if "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return kopf.login_with_kubeconfig(**kwargs)
    return kopf.login_with_service_account(**kwargs)
