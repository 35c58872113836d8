"""What kopf is used for: watching the four kinds. Its handlers only pass on what they see.

kopf keeps its state on the objects it handles; here it must not write anything (promise 8), so handlers are plain
`on.event`, and the storages that would annotate objects are replaced by ones that do nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import kopf
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

Saw = Callable[[Resource, str | None, Mapping[str, Any]], None]
"""Called with (kind, event type, object). The type is ADDED, MODIFIED, DELETED, or None for one of a first list."""


class _NoProgress(kopf.ProgressStorage):
    """Keeps no handler progress: there is none."""

    def fetch(self, *, key: Any, body: Any) -> None:
        """Return nothing."""

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        """Write nothing."""

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        """Write nothing."""

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        """Write nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Return the object as it is."""
        return essence


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last-handled state: nothing is compared."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        """Return nothing to compare."""
        return {}

    def fetch(self, *, body: Any) -> None:
        """Return nothing."""

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Write nothing."""


def settings() -> kopf.OperatorSettings:
    """Return settings under which kopf writes nothing to the cluster."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    chosen.persistence.progress_storage = _NoProgress()
    chosen.persistence.diffbase_storage = _NoDiffBase()
    return chosen


def registry(saw: Saw) -> kopf.OperatorRegistry:
    """Return a registry that passes every event of the four kinds to `saw`."""
    found = kopf.OperatorRegistry()
    kopf.on.login(registry=found)(_login)
    for resource in (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS):
        _register(found, resource, saw)
    return found


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in where our own session does: a kubeconfig if one is named, else the pod's service account."""
    if "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return kopf.login_with_kubeconfig(**kwargs)
    return kopf.login_with_service_account(**kwargs)


def _register(found: kopf.OperatorRegistry, resource: Resource, saw: Saw) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=found, id=resource.plural)
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        saw(resource, event["type"], event["object"])
