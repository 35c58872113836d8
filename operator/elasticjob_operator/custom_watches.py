"""Watches the four custom resources for the store.

An object that cannot be decoded is set aside and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from elasticjob_api.meta import ObjectMeta
from elasticjob_kube.informer import Change, Identity, Informer
from elasticjob_kube.resources import Resource
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model.observed import Repair
from elasticjob_operator.core.model.patches import readable
from elasticjob_operator.events import Subject
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.store import TYPES, Custom, JobKey, Store


def custom_informers(
    kube: Kube,
    namespace: str | None,
    store: Store,
    conditions: OwnConditions,
    on_job: Callable[[JobKey], None],
    on_custom: Change[Custom] = lambda _, __: None,
) -> list[Informer[Any]]:
    """Return the informers of the four kinds.

    They keep the store up to date, and report the jobs with news.
    """
    return [
        _informer(kube, namespace, resource, store, conditions, on_job, on_custom)
        for resource in TYPES
    ]


@dataclass(frozen=True)
class _Read:
    """An object, and what brings its status within its bounds, if somebody has written it beyond them."""

    custom: Custom
    repair: Repair | None

    @property
    def metadata(self) -> ObjectMeta:
        return self.custom.metadata


def _informer(
    kube: Kube,
    namespace: str | None,
    resource: Resource,
    store: Store,
    conditions: OwnConditions,
    on_job: Callable[[JobKey], None],
    on_custom: Change[Custom],
) -> Informer[_Read]:
    as_type: type[Any] = TYPES[resource]
    decoder = msgspec.json.Decoder(as_type)

    def decode(raw: msgspec.Raw) -> _Read:
        try:
            return _Read(decoder.decode(raw), None)
        except msgspec.ValidationError:
            return _Read(*readable(msgspec.json.decode(raw, type=dict[str, Any]), as_type))

    def on_change(before: _Read | None, after: _Read | None) -> None:
        if after is not None:
            subject = Subject(
                resource, after.metadata.namespace, after.metadata.name, after.metadata.uid
            )
            conditions.clear(subject, "Unreadable", after.custom.status.conditions)
            key = store.change(None, after.custom, after.repair)
        else:
            key = store.change(before.custom if before else None, None)
        if key is not None:
            on_job(key)
        on_custom(before.custom if before else None, after.custom if after else None)

    def on_unreadable(found: Identity, why: str) -> None:
        store.set_aside(found.uid)
        subject = Subject(resource, found.namespace, found.name, found.uid)
        message = f"the operator leaves this {resource.kind} alone until it can read it: {why}"
        conditions.hold(subject, "Unreadable", "CannotBeDecoded", message)

    return Informer(
        kube,
        resource,
        decode,
        namespace=namespace,
        on_change=on_change,
        on_unreadable=on_unreadable,
    )
