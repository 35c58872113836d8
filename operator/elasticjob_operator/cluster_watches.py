"""Watches nodes, for those that are about to leave, and LimitRanges, for the default limits of namespaces.

An operator may lack the right to watch them. It works without, and logs what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import LIMIT_RANGES, NODES
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model.limit_ranges import LimitRange
from elasticjob_operator.core.scaling.disruption import Node
from elasticjob_operator.store import JobKey, Store

log = logging.getLogger(__name__)
_RETRY_SECONDS = 600.0
_AGAIN_SECONDS = 1.0


async def watch_nodes(
    kube: Kube, store: Store, on_affected_job: Callable[[JobKey], None], answered: asyncio.Event
) -> None:
    """Keep what the store knows of nodes up to date, and report the jobs with pods on one that changes; never returns.

    When all nodes are known, or it is known that they may not be listed, `answered` is set: a
    replacement of a pod on a node with a problem shall avoid such nodes, so nothing is decided
    before.

    Without the right, which an operator for one namespace may lack, only the DisruptionTarget
    condition of pods says that they must leave, and later.
    """

    def on_change(before: Node | None, after: Node | None) -> None:
        for key in store.update_node(before, after):
            on_affected_job(key)

    nodes = Informer(kube, NODES, Node, on_change=on_change)
    await run_if_allowed(
        nodes, missing="no notice of leaving nodes", grant="nodes", answered=answered
    )


async def watch_limit_ranges(kube: Kube, store: Store, namespace: str | None) -> None:
    """Keep the store's default limits up to date; never returns.

    Nothing waits for them: a pod that is refused because it lacks a limit is tried again anyway.
    """
    ranges = Informer(
        kube, LIMIT_RANGES, LimitRange, namespace=namespace, on_change=store.update_limit_range
    )
    await run_if_allowed(
        ranges, missing="default limits of namespaces are not known", grant="limitranges"
    )


async def run_if_allowed(
    informer: Informer[Any], *, missing: str, grant: str, answered: asyncio.Event | None = None
) -> None:
    """Run an informer.

    Without the right to list its objects, log what is missing, and try again after a while. The
    same where the cluster does not serve their kind. `answered` is set when they are listed, or
    this is refused.
    """
    logged = False
    answered = answered or asyncio.Event()
    while True:
        try:
            await informer.refresh()
            break
        except Refused as error:
            if not logged:
                log.warning("%s: %s; grant list and watch of %s", missing, error.message, grant)
                logged = True
            answered.set()
            await asyncio.sleep(_RETRY_SECONDS)
        except NotFound:
            if not logged:
                log.warning("%s: the cluster does not serve %s; trying again", missing, grant)
                logged = True
            await asyncio.sleep(_AGAIN_SECONDS)
        except KubeError:
            await asyncio.sleep(_AGAIN_SECONDS)
    if logged:
        log.info("%s are found now", grant)
    answered.set()
    await informer.run()
