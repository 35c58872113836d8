"""Watches nodes for one thing only: whether they are about to go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from elasticjob_kube.errors import KubeError, Refused
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import NODES
from elasticjob_kube.session import Kube

from elasticjob_operator.core.disruption import Node
from elasticjob_operator.store import JobKey, Store

log = logging.getLogger(__name__)
_ASK_AGAIN_SECONDS = 600.0


async def watch_nodes(kube: Kube, store: Store, concerns: Callable[[JobKey], None]) -> None:
    """Keep the store's leaving nodes current, and name the jobs with pods there; never returns.

    An operator for one namespace may have no right to read nodes. It works without: the pods' own DisruptionTarget
    condition tells the rest, only later.
    """

    def saw(before: Node | None, after: Node | None) -> None:
        for key in store.see_node(before, after):
            concerns(key)

    nodes = Informer(kube, NODES, Node, on_change=saw)
    told = False
    while True:
        try:
            await nodes.refresh()
            break
        except Refused as error:
            if not told:
                log.warning("no notice of leaving nodes: %s; grant get, list and watch of nodes", error.message)
                told = True
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
        except KubeError:
            break  # the informer tries again, with growing pauses
    await nodes.run()
