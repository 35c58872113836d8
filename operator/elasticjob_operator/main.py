"""The operator's process.

Connects, waits for the CRDs and for leadership, then watches and reconciles.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys

import kopf
import uvloop
from elasticjob_api import names
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.informer import Informer
from elasticjob_kube.resources import PODS
from elasticjob_kube.session import Kube, connect

from elasticjob_operator.cluster_watches import watch_limit_ranges, watch_nodes
from elasticjob_operator.config import Config, parse
from elasticjob_operator.core.model.observed import Defaults, Pod
from elasticjob_operator.custom_watches import custom_informers
from elasticjob_operator.ended_log import EndedLog
from elasticjob_operator.events import Events
from elasticjob_operator.executor import Executor
from elasticjob_operator.http_server import OperatorState, serve_http
from elasticjob_operator.infrastructure_watch import InfrastructureWatch
from elasticjob_operator.kopf_lifecycle import run_until_signalled
from elasticjob_operator.lease import LeaderElector, LeaseLost
from elasticjob_operator.own_conditions import OwnConditions
from elasticjob_operator.pod_executor import PodExecutor
from elasticjob_operator.quota_watch import QuotaWatch
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.rules_watch import RulesWatch
from elasticjob_operator.store import JobKey
from elasticjob_operator.wait_for_crds import wait_for_crds
from elasticjob_operator.work_queue import WorkQueue
from elasticjob_operator.workload_executor import WorkloadExecutor

log = logging.getLogger(__name__)
CONNECTIONS = 64
"""Enough to keep an API server busy. Opening one costs both sides as much CPU as several writes."""
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Python's default of 700 would collect garbage all the time with a large job, although there are
hardly any cycles.
"""


def main() -> None:
    """Run the operator until SIGTERM or SIGINT; exit code 1 when it cannot run."""
    config = parse()
    _configure_logging(config)
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    if config.kubeconfig:
        # kopf takes its cluster from there, and it must be the one of our own session.
        os.environ["KUBECONFIG"] = str(config.kubeconfig)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            uvloop.run(_run(config))
    except NoAccess as error:
        sys.exit(f"elasticjob-operator: no cluster to work on: {error}")


async def _run(config: Config) -> None:
    _end_on_signals()
    async with (
        connect(
            user_agent=names.OPERATOR, kubeconfig=config.kubeconfig, connections=CONNECTIONS
        ) as kube,
        # A session of its own: the lease's renewal must not queue behind the writes that depend on
        # it.
        connect(
            user_agent=names.OPERATOR, kubeconfig=config.kubeconfig, connections=1
        ) as lease_kube,
    ):
        state = OperatorState(kube)
        elector = LeaderElector(
            lease_kube, config.lease_namespace, config.identity, config.lease_seconds
        )
        async with serve_http(state, config.http_port):
            await wait_for_crds(kube, config.namespace)
            state.ready = True
            while True:
                try:
                    async with elector.leadership() as leadership:
                        state.leading = True
                        await _run_as_leader(kube.guarded(leadership.check), config, state)
                    return
                except LeaseLost as error:
                    # Not ended: the kubelet restarts what ends again and again ever later, after up
                    # to 5 minutes.
                    log.warning("%s; waiting to lead again", error)
                    state.forget()
                    _end_on_signals()


def _end_on_signals() -> None:
    """Let signals cancel this task, until kopf takes them over."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _run_as_leader(kube: Kube, config: Config, state: OperatorState) -> None:
    """Watch and reconcile until a signal comes, then finish the work in progress.

    Nothing is written after the return.

    Raises:
        CancelledError: the lease is lost; work in progress is cancelled at once.
        Exception: what ended a watch or kopf. They do not end by themselves, and the operator cannot run without one.
    """
    store = state.store
    all_listed = asyncio.Event()
    nodes_answered = asyncio.Event()
    ended_log = EndedLog(sys.stdout if config.ended_log else None)

    def on_job(key: JobKey) -> None:
        if all_listed.is_set():
            queue.add(key)

    def on_pod_change(before: Pod | None, after: Pod | None) -> None:
        if key := store.update_pod(before, after):
            on_job(key)
        ended_log.pod_changed(before, after)

    def on_end(key: JobKey, error: BaseException | None) -> None:
        if (job := store.job(key)) is not None:
            conditions.reconciled(job, error)

    async def begin() -> None:
        # Nothing is decided before everything is listed: a job whose pods are not known would get
        # new ones.
        for informer in (pods, *customs):
            await informer.synced.wait()
        await nodes_answered.wait()
        await rules.first()
        if quota is not None:
            await quota.first()
        all_listed.set()
        for key in store.job_keys():
            queue.add(key)

    async def finish() -> None:
        log.info("ending: finishing what has been begun")
        await queue.close()
        await conditions.writes.close()
        await events.flush()

    pods = Informer(
        kube,
        PODS,
        Pod,
        namespace=config.namespace,
        label_selector=names.LABEL_JOB_UID,
        on_change=on_pod_change,
    )
    events = Events(kube, config.identity)
    conditions = OwnConditions(kube.low_priority(), events)
    customs = custom_informers(
        kube, config.namespace, store, conditions, on_job, ended_log.custom_changed
    )
    quota = QuotaWatch(kube, store, config.namespace, on_job) if config.kueue else None
    executor = Executor(
        kube,
        store,
        PodExecutor(kube, pods, store.pods, events),
        events,
        config.network_policies,
        WorkloadExecutor(kube, quota.workloads) if quota is not None else None,
    )
    defaults = Defaults(master_image=config.master_image, agent_image=config.agent_image)
    queue = state.queue = WorkQueue(Reconciler(kube, store, executor, defaults).reconcile, on_end)
    rules = RulesWatch(kube, store, events, config.lease_namespace)
    infrastructure = InfrastructureWatch(kube, store, queue.add)

    # Tasks of their own: kopf takes seconds to end, and when the lease is lost the queue must not
    # go on meanwhile.
    tasks: list[asyncio.Task[None]] = [
        asyncio.create_task(work)
        for work in (
            *(informer.run() for informer in (pods, *customs)),
            watch_nodes(kube, store, on_job, nodes_answered),
            rules.run(),
            *(quota.tasks() if quota is not None else ()),
            watch_limit_ranges(kube, store, config.namespace),
            *infrastructure.tasks(config.namespace, network_policies=config.network_policies),
            run_until_signalled(
                begin=begin, finish=finish, identity=config.identity, namespace=config.namespace
            ),
        )
    ]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await queue.abort()
        await conditions.writes.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


def _configure_logging(config: Config) -> None:
    logging.captureWarnings(True)
    if config.json_logs:
        kopf.configure(log_format=kopf.LogFormat.JSON)
    else:
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
        )
    logging.getLogger("kopf").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
