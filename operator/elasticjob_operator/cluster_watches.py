"""Watches what is around the jobs and bears on them: nodes that are about to go, and default limits of namespaces.

Neither is a job's own, so an operator may lack the right to see it. It works without, and says what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from elasticjob_kube.errors import KubeError, Refused
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import LIMIT_RANGES, NODES
from elasticjob_kube.session import Kube

from elasticjob_operator.core.model.limit_ranges import LimitRange
from elasticjob_operator.core.scaling.disruption import Node
from elasticjob_operator.store import JobKey, Store

log = logging.getLogger(__name__)
_ASK_AGAIN_SECONDS = 600.0


async def watch_nodes(kube: Kube, store: Store, concerns: Callable[[JobKey], None]) -> None:
    """Keep the store's leaving nodes current, and name the jobs with pods there; never returns.

    Without the right, as an operator for one namespace may be, the pods' own DisruptionTarget condition tells the
    rest, only later.
    """

    def saw(before: Node | None, after: Node | None) -> None:
        for key in store.update_node(before, after):
            concerns(key)

    nodes = Informer(kube, NODES, Node, on_change=saw)
    await _watch(nodes, lost="no notice of leaving nodes", grant="nodes")


async def watch_limit_ranges(kube: Kube, store: Store, namespace: str | None) -> None:
    """Keep the store's default limits current; never returns.

    Nobody is waiting for them: a pod that is refused for the want of one is tried again anyway.
    """
    ranges = Informer(kube, LIMIT_RANGES, LimitRange, namespace=namespace, on_change=store.update_limit_range)
    await _watch(ranges, lost="default limits of namespaces are not known", grant="limitranges")


async def _watch(informer: Informer[Any], *, lost: str, grant: str) -> None:
    told = False
    while True:
        try:
            await informer.refresh()
            break
        except Refused as error:
            if not told:
                log.warning("%s: %s; grant list and watch of %s", lost, error.message, grant)
                told = True
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
        except KubeError:
            break  # the informer tries again, with growing pauses
    await informer.run()
