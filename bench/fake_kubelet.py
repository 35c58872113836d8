"""A fake kubelet.

Makes every new pod of a namespace running and ready with one write, without decoding it whole. A
separate process (`python -m bench.fake_kubelet KUBECONFIG NAMESPACE`), so that its CPU time
counts for no figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import msgspec
import uvloop
from elasticjob_kube.errors import Conflict, NotFound
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube, connect

from bench.pod_counter import Meta, new_pods

_CONCURRENT_WRITES = 16
_READY = msgspec.Raw(
    b'{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
)
"""Without an address: the pods are on no node, and the controllers of Services complain of an
address without one.
"""


async def mark_pods_ready(kube: Kube, namespace: str) -> None:
    """Mark every new pod as ready, until cancelled."""
    slots = asyncio.Semaphore(_CONCURRENT_WRITES)
    starting: set[asyncio.Task[None]] = set()

    async def start(name: str) -> None:
        path = PODS.path(namespace, name, "status")
        async with slots:
            with contextlib.suppress(NotFound, Conflict):  # deleted meanwhile
                await kube.request(
                    "PATCH", path, body=_READY, content_type="application/merge-patch+json"
                )

    def created(pod: Meta) -> None:
        task = asyncio.create_task(start(pod.name))
        starting.add(task)
        task.add_done_callback(starting.discard)

    await new_pods(kube, namespace, created).run()


async def _run(kubeconfig: Path, namespace: str) -> None:
    async with connect(user_agent="elasticjob-bench-kubelet", kubeconfig=kubeconfig) as kube:
        await mark_pods_ready(kube, namespace)


if __name__ == "__main__":
    uvloop.run(_run(Path(sys.argv[1]), sys.argv[2]))
