"""Watches the four custom resources with kopf, and passes each event on to one function.

kopf lists and watches these resources, connects again after errors, and handles signals. Nothing else of it is used:
work queue, retries, leader election, events and the watch of pods are the operator's own. kopf would keep the progress
of its handlers in annotations of users' objects; here it must write nothing, because at rest the operator writes
nothing (docs/guarantees.md). So the handlers are plain `on.event`, and kopf's storages are replaced by ones that store
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import kopf
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

OnEvent = Callable[[Resource, str | None, Mapping[str, Any]], None]
"""Called with resource, event type and object. The type is ADDED, MODIFIED, DELETED, or None for a listed object."""


class _NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers."""

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
    """Stores no last-handled state."""

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


def registry(on_event: OnEvent) -> kopf.OperatorRegistry:
    """Return a registry that passes every event of the four kinds to `on_event`."""
    created = kopf.OperatorRegistry()
    kopf.on.login(registry=created)(_login)
    for resource in (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS):
        _register(created, resource, on_event)
    return created


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in as the operator's own session does: by a kubeconfig if one is named, else by the service account."""
    if "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return kopf.login_with_kubeconfig(**kwargs)
    return kopf.login_with_service_account(**kwargs)


def _register(target: kopf.OperatorRegistry, resource: Resource, on_event: OnEvent) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=target, id=resource.plural)
    async def handler(event: kopf.RawEvent, **_: Any) -> None:
        on_event(resource, event["type"], event["object"])
