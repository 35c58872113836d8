"""Watches the four custom resources for the store.

The operator may be started before their definitions exist. An object that cannot be decoded is
excluded from the store and gets a condition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.informer import Change, Identity, Informer
from elasticjob_kube.resources import Resource
from elasticjob_kube.session import Kube

from elasticjob_operator.core.partitioning import Scope
from elasticjob_operator.events import Subject
from elasticjob_operator.job_keys import Custom, JobKey
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.store import TYPES, Store, to_cache

log = logging.getLogger(__name__)
_PAUSE_SECONDS = 1.0
_LOG_EVERY_ATTEMPTS = 10


async def wait_for_crds(kube: Kube, namespace: str | None) -> None:
    """Return when the API server serves all four kinds in the namespace, or in all if it is None.

    A missing kind is logged at once and then every ten seconds.
    """
    attempt = 0
    while missing := await _missing_kind(kube, namespace):
        if attempt % _LOG_EVERY_ATTEMPTS == 0:
            log.warning(
                "waiting: %s; apply the definitions: kubectl apply --server-side -f crds/", missing
            )
        attempt += 1
        await asyncio.sleep(_PAUSE_SECONDS)


async def _missing_kind(kube: Kube, namespace: str | None) -> str:
    """Return, for the log, which kind the API server does not serve; empty if it serves all."""
    for kind in TYPES:
        try:
            await kube.request("GET", kind.path(namespace), params={"limit": "1"})
        except NotFound:
            return f"the cluster does not serve {kind.plural}.{names.GROUP} ({names.VERSION})"
        except KubeError as error:
            return f"cannot list {kind.plural}.{names.GROUP}: {error}"
    return ""


def custom_informer(
    kube: Kube,
    scope: Scope,
    resource: Resource,
    store: Store,
    conditions: OwnConditions,
    on_job: Callable[[JobKey], None],
    on_custom: Change[Custom] = lambda _, __: None,
    on_rewound: Callable[[], None] = lambda: None,
) -> Informer[Any]:
    """Return the informer of one of the four kinds.

    It keeps the store up to date and calls `on_job` with each job that an object belongs to.
    """

    def on_change(before: Custom | None, after: Custom | None) -> None:
        if after is not None:
            subject = Subject.of(resource, after.metadata)
            conditions.clear(subject, "Unreadable", after.status.conditions)
        key = store.change(before, after)
        on_custom(before, after)
        if key is not None:
            on_job(key)

    def on_unreadable(found: Identity, why: str) -> None:
        store.set_aside(found.uid)
        subject = Subject(resource, found.namespace, found.name, found.uid)
        message = f"the operator leaves this {resource.kind} alone until it can read it: {why}"
        conditions.set(subject, "Unreadable", "CannotBeDecoded", message)

    decoder = msgspec.json.Decoder(TYPES[resource])

    def decode(raw: msgspec.Raw) -> Custom:
        return to_cache(decoder.decode(raw))

    return Informer(
        kube,
        resource,
        decode,
        namespace=scope.namespace,
        only=scope.only,
        on_change=on_change,
        on_unreadable=on_unreadable,
        on_rewound=on_rewound,
    )
