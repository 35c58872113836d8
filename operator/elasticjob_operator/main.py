"""The operator's process: it connects, waits for the CRDs, and then leads what it may lead."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import uvloop
from elasticjob_api import names
from elasticjob_api.json_log import json_log_handler
from elasticjob_api.text_log import log_handler
from elasticjob_kube import open_files
from elasticjob_kube.clock import Clock
from elasticjob_kube.connection import log_broken_connections_briefly
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.session import connect
from elasticjob_kube.trace_export import TraceExport

from elasticjob_operator.admission_server import serve_admission
from elasticjob_operator.config import Config, parse
from elasticjob_operator.custom_watches import wait_for_crds
from elasticjob_operator.http_server import OperatorState, serve_http
from elasticjob_operator.partitions import Partitions

CONNECTIONS = 64
"""Enough to keep an API server busy. Opening one costs both sides as much CPU as several writes."""
OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""With Python's default of 700, a large job would cause garbage collections all the time, although
there are hardly any reference cycles.
"""
_WATCH_SECONDS = 20.0
"""The longest life of a watch. The operator has about a dozen of them, so shorter lives than those
of masters cost less than a request per second, and it notices a silent watch after 24 s.
"""


def main() -> None:
    """Run the operator until SIGTERM or SIGINT; exit with 1 if it cannot run."""
    config = parse()
    _configure_logging(config)
    open_files.raise_limit()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    if config.kubeconfig:
        # kopf finds its cluster by this variable, and it must be the cluster of our own session.
        os.environ["KUBECONFIG"] = str(config.kubeconfig)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            uvloop.run(_run(config))
    except NoAccess as error:
        sys.exit(f"elasticjob-operator: no cluster to work on: {error}")


async def _run(config: Config) -> None:
    log_broken_connections_briefly()
    _cancel_on_signals()
    clock = Clock()
    async with (
        connect(
            user_agent=names.OPERATOR,
            kubeconfig=config.kubeconfig,
            connections=CONNECTIONS,
            watch_seconds=_WATCH_SECONDS,
            clock=clock,
        ) as kube,
        connect(
            user_agent=names.OPERATOR,
            kubeconfig=config.kubeconfig,
            # No Lease waits for the answer about another one.
            connections=1 if config.partitions == 1 else 1 + config.partitions,
            clock=clock,
        ) as lease_kube,
        # Questions of the webhook must not wait behind the work, and the work not behind them.
        connect(
            user_agent=names.OPERATOR, kubeconfig=config.kubeconfig, connections=8, clock=clock
        ) as admission_kube,
    ):
        state = OperatorState(kube, config.partitions)
        async with (
            serve_http(state, config.http_port),
            serve_admission(admission_kube, config),
        ):
            await wait_for_crds(kube, config.namespace)
            state.ready = True
            with contextlib.closing(TraceExport(names.OPERATOR, os.environ)) as traces:
                await _lead(Partitions(kube, lease_kube, config, state, traces), config)


async def _lead(partitions: Partitions, config: Config) -> None:
    """Lead partitions until a signal comes."""
    leading = asyncio.create_task(partitions.run())

    async def finish() -> None:
        await partitions.end()
        leading.cancel()

    signalled = asyncio.create_task(
        _run_until_signalled(finish=finish, identity=config.identity, namespace=config.namespace)
    )
    try:
        await asyncio.wait((leading, signalled), return_when=asyncio.FIRST_COMPLETED)
        if leading.done() and not leading.cancelled():
            leading.result()
        await signalled
    finally:
        leading.cancel()
        signalled.cancel()
        await asyncio.gather(leading, signalled, return_exceptions=True)


async def _run_until_signalled(
    *, finish: Callable[[], Awaitable[None]], identity: str, namespace: str | None
) -> None:
    """Wait for SIGTERM or SIGINT by kopf, run `finish`, and return.

    kopf watches nothing here (docs/architecture.md says why). If this function is cancelled,
    `finish` may not run.
    """
    await kopf.operator(
        registry=_registry(finish),
        settings=_settings(),
        standalone=True,
        # kopf's default reads the user from /etc/passwd, which a container's user may not be in.
        identity=identity,  # type: ignore[arg-type]
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace else [],
    )


def _settings() -> kopf.OperatorSettings:
    """Return settings with which kopf writes nothing to the cluster, and reads it only once."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    return chosen


def _registry(finish: Callable[[], Awaitable[None]]) -> kopf.OperatorRegistry:
    created = kopf.OperatorRegistry()
    kopf.on.login(registry=created)(_login)

    # By default kopf repeats an activity that fails, which this one must not be.
    @kopf.on.cleanup(registry=created, errors=kopf.ErrorsMode.PERMANENT)
    async def cleanup(**_: Any) -> None:
        await finish()

    return created


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Use the credentials of the operator's own session: a kubeconfig, or the service account."""
    if "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return kopf.login_with_kubeconfig(**kwargs)
    return kopf.login_with_service_account(**kwargs)


def _cancel_on_signals() -> None:
    """Let SIGTERM and SIGINT cancel this task, until kopf handles them."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _configure_logging(config: Config) -> None:
    logging.captureWarnings(True)
    line = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    handler = json_log_handler() if config.log_format == "json" else log_handler(line)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("kopf").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
