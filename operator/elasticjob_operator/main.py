"""The operator's process: connect, wait for the definitions, wait to lead, then watch and reconcile until the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import kopf
import uvloop
from elasticjob_api import names
from elasticjob_kube.errors import KubeError, NoAccess
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS, Resource
from elasticjob_kube.session import Kube, connect

from elasticjob_operator import kopf_watches
from elasticjob_operator.cluster_watches import watch_limit_ranges, watch_nodes
from elasticjob_operator.config import Config, parse
from elasticjob_operator.core.model.observed import Defaults, Pod
from elasticjob_operator.events import Events
from elasticjob_operator.executor import Executor
from elasticjob_operator.http_server import Standing, served
from elasticjob_operator.lease import Candidate, LeaseLost
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.store import TYPES, Store
from elasticjob_operator.wait_for_crds import wait_for_crds
from elasticjob_operator.work_queue import WorkQueue

log = logging.getLogger(__name__)
CONNECTIONS = 64
"""Enough to keep an API server busy; each costs both sides as much CPU to open as several writes."""
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Python's default of 700 has a large job searched for cycles all the time, and there are hardly any."""


def main() -> None:
    """Run the operator until SIGTERM or SIGINT; exit code 1 when it cannot run or has lost the lead."""
    config = parse()
    _log(config)
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    if config.kubeconfig:
        # One place says which cluster, for our session and for kopf's.
        os.environ["KUBECONFIG"] = str(config.kubeconfig)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            uvloop.run(_run(config))
    except NoAccess as error:
        sys.exit(f"elasticjob-operator: no cluster to work on: {error}")
    except LeaseLost as error:
        sys.exit(f"elasticjob-operator: {error}")


async def _run(config: Config) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)  # until kopf takes the signals over
    async with (
        connect(user_agent=names.OPERATOR, kubeconfig=config.kubeconfig, connections=CONNECTIONS) as kube,
        # The lease's renewal must not wait behind the very writes that it allows.
        connect(user_agent=names.OPERATOR, kubeconfig=config.kubeconfig, connections=1) as leasing,
    ):
        standing = Standing(kube)
        candidate = Candidate(leasing, config.lease_namespace, config.identity, config.lease_seconds)
        async with served(standing, config.http_port):
            await wait_for_crds(kube, config.namespace)
            standing.able = True
            async with candidate.leadership() as lead:
                standing.leading = True
                await _lead(kube.guarded(lead.check), config, standing)


async def _lead(kube: Kube, config: Config, standing: Standing) -> None:
    """Watch and reconcile until a signal comes; then finish what has been begun. Nothing is written after the return.

    Raises:
        CancelledError: the lead is lost; what has been begun is broken off at once.
        Exception: whatever ended the watch of pods or kopf; neither ends by itself, and without one we are blind.
    """
    store, all_seen = standing.store, asyncio.Event()

    def saw_pod(before: Pod | None, after: Pod | None) -> None:
        if (key := store.update_pod(before, after)) and all_seen.is_set():
            queue.add(key)

    def saw(resource: Resource, kind: str | None, raw: Mapping[str, Any]) -> None:
        if key := store.update(resource, kind, raw):
            queue.add(key)

    pods = Informer(kube, PODS, Pod, namespace=config.namespace, label_selector=names.LABEL_JOB_UID, on_change=saw_pod)
    events = Events(kube, config.identity)
    executor = Executor(kube, store, PodExecutor(kube, pods, events), events)
    defaults = Defaults(master_image=config.master_image, agent_image=config.agent_image)
    queue = standing.queue = WorkQueue(Reconciler(kube, store, executor, defaults).reconcile)

    async def notice_leaving_nodes() -> None:
        await all_seen.wait()
        await watch_nodes(kube, store, queue.add)

    async def serve() -> None:
        # Nothing is decided before the pods are known: a job without its pods would be given new ones.
        await pods.synced.wait()
        await _see_all(kube, config.namespace, store)
        all_seen.set()
        for key in store.job_keys():
            queue.add(key)
        await kopf.operator(
            registry=kopf_watches.registry(saw),
            settings=kopf_watches.settings(),
            standalone=True,
            # kopf would look for one in /etc/passwd, where the user of a container need not be.
            identity=config.identity,  # type: ignore[arg-type]
            clusterwide=config.namespace is None,
            namespaces=[config.namespace] if config.namespace else [],
        )

    # Tasks of their own: kopf takes seconds to end, and when the lead is lost the queue must not go on meanwhile.
    working = pods.run(), notice_leaving_nodes(), watch_limit_ranges(kube, store, config.namespace), serve()
    tasks = [asyncio.create_task(work) for work in working]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
        log.info("ending: finishing what has been begun")
        await queue.close()
        await events.flush()
    finally:
        for task in tasks:
            task.cancel()
        await queue.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _see_all(kube: Kube, namespace: str | None, store: Store) -> None:
    """Read all four kinds before the first decision: kopf lists them one by one, and a plan could be seen too late."""
    for resource in TYPES:
        while True:
            try:
                found = await kube.list(resource, namespace)
            except KubeError as error:
                log.warning("cannot list %s: %s", resource.plural, error)
                await asyncio.sleep(1)
                continue
            break
        for item in found["items"]:
            store.update(resource, None, item)


def _log(config: Config) -> None:
    logging.captureWarnings(True)
    if config.json_logs:
        kopf.configure(log_format=kopf.LogFormat.JSON)
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
