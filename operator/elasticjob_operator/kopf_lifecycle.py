"""Runs the wait for a signal, and the end of the operator, by kopf.

kopf watches nothing here. Its watches decode with Python's json, whose depth is bounded by the
stack: one deeply nested object of one user would end the operator, and each of its restarts. They
do not report deletions that happen while they are broken, either. Its handlers keep their progress
in annotations of users' objects, while an idle operator must write nothing (docs/guarantees.md). So
the watches, the work queue, the retries, the leader election, the events and the admission webhook
are our own.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import kopf

Activity = Callable[[], Awaitable[None]]


async def run_until_signalled(*, finish: Activity, identity: str, namespace: str | None) -> None:
    """Wait for SIGTERM or SIGINT, run `finish`, and return.

    If this function is cancelled, `finish` may not run.
    """
    await kopf.operator(
        registry=_registry(finish),
        settings=_settings(),
        standalone=True,
        # kopf's default reads the user from /etc/passwd, which a container's user may not be in.
        identity=identity,  # type: ignore[arg-type]
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace else [],
    )


def _settings() -> kopf.OperatorSettings:
    """Return settings with which kopf writes nothing to the cluster, and reads it only once."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    return chosen


def _registry(finish: Activity) -> kopf.OperatorRegistry:
    created = kopf.OperatorRegistry()
    kopf.on.login(registry=created)(_login)

    # By default kopf repeats an activity that fails, which this one must not be.
    @kopf.on.cleanup(registry=created, errors=kopf.ErrorsMode.PERMANENT)
    async def cleanup(**_: Any) -> None:
        await finish()

    return created


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Use the credentials of the operator's own session: a kubeconfig, or the service account."""
    if "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return kopf.login_with_kubeconfig(**kwargs)
    return kopf.login_with_service_account(**kwargs)
