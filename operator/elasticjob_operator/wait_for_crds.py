"""Waits until the API server serves the custom resource definitions.

The operator may be started before them.
"""

from __future__ import annotations

import asyncio
import logging

from elasticjob_api import names
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS
from elasticjob_kube.session import Kube

log = logging.getLogger(__name__)
_KINDS = (ELASTIC_JOBS, SCALE_PLANS, SCALE_INS, SCALE_OUTS)
_PAUSE_SECONDS = 1.0
_LOG_EVERY_ATTEMPTS = 10


async def wait_for_crds(kube: Kube, namespace: str | None) -> None:
    """Return when the API server serves all four kinds in the namespace (None: in all).

    What is missing is logged at once and every ten seconds.
    """
    for attempt in range(10**9):
        missing = await _missing(kube, namespace)
        if not missing:
            return
        if attempt % _LOG_EVERY_ATTEMPTS == 0:
            log.warning(
                "waiting: %s; apply the definitions: kubectl apply --server-side -f crds/", missing
            )
        await asyncio.sleep(_PAUSE_SECONDS)


async def _missing(kube: Kube, namespace: str | None) -> str:
    """Return what the API server does not serve yet, for the log.

    Empty when it serves everything.
    """
    try:
        for kind in _KINDS:
            await kube.request("GET", kind.path(namespace), params={"limit": "1"})
    except NotFound:
        return f"the cluster does not serve {kind.plural}.{names.GROUP} ({names.VERSION})"
    except KubeError as error:
        return f"cannot list {kind.plural}.{names.GROUP}: {error}"
    return ""
