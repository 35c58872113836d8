"""Waiting for the custom resource definitions: an operator may be started before them, never the other way round."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from elasticjob_api import names
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS
from elasticjob_kube.session import Kube

log = logging.getLogger(__name__)
_KINDS = (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)
_PAUSE_SECONDS = 1.0
_REMIND_EVERY = 10


class _Named(msgspec.Struct):
    name: str


class _Groups(msgspec.Struct):
    groups: list[_Named]


class _Kinds(msgspec.Struct):
    resources: list[_Named]


async def wait_for_crds(kube: Kube, namespace: str | None) -> None:
    """Return when the API server serves all four kinds in the namespace (None: in all).

    What is missing is said at first and every ten seconds.
    """
    for attempt in range(10**9):
        missing = await _missing(kube, namespace)
        if not missing:
            return
        if attempt % _REMIND_EVERY == 0:
            log.warning("waiting: %s; apply the definitions: kubectl apply --server-side -f crds/", missing)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _missing(kube: Kube, namespace: str | None) -> str:
    """Return what keeps us from starting, in words; empty when nothing does."""
    try:
        for kind in _KINDS:
            await kube.request("GET", kind.path(namespace), params={"limit": "1"})
        # kopf watches what is announced when it starts, and the announcement comes later than the kinds themselves.
        groups = msgspec.json.decode(await kube.request("GET", "/apis"), type=_Groups).groups
        announced = msgspec.json.decode(await kube.request("GET", f"/apis/{names.API_VERSION}"), type=_Kinds).resources
    except NotFound:
        return f"the cluster does not serve {kind.plural}.{names.GROUP} ({names.VERSION})"
    except KubeError as error:
        return f"cannot list {kind.plural}.{names.GROUP}: {error}"
    late = {kind.plural for kind in _KINDS} - {one.name for one in announced}
    if late or names.GROUP not in {one.name for one in groups}:
        return f"the cluster does not announce {', '.join(sorted(late)) or names.GROUP} yet"
    return ""
