"""`elasticjob-master`: starts all parts of the master, and stops them on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import uvloop
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.json_log import json_log_handler
from elasticjob_api.text_log import log_handler
from elasticjob_kube import open_files
from elasticjob_kube.connection import log_broken_connections_briefly
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.session import connect
from elasticjob_kube.trace_export import TraceExport

from elasticjob_master import control_loop
from elasticjob_master.config import Config, ConfigError, load
from elasticjob_master.controller import Controller
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.config_map import ConfigMapStore
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import (
    CredentialsRefused,
    FileStore,
    NoStore,
    Store,
    StoreFailed,
    TakenOver,
)
from elasticjob_master.persistence.stored_state import UnreadableState, decode
from elasticjob_master.server.answers import stored_answers
from elasticjob_master.server.connection_guard import ConnectionGuard
from elasticjob_master.server.grpc_server import (
    CannotListen,
    GrpcServer,
    leave_gone_callers_out_of_the_log,
)
from elasticjob_master.server.http_server import HttpServer
from elasticjob_master.server.metrics import Metrics
from elasticjob_master.traces import Traces

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_MOST_DIGITS = 5
"""Of a number of workers in the standard input."""
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""The threshold of the garbage collector. With Python's default of 700 it would always search the
objects of thousands of agents.
"""


async def serve(config: Config, stop: asyncio.Event) -> None:
    """Serve as the master until `stop`.

    Raises:
        TakenOver: another master of the job has begun.
        CredentialsRefused: this pod can never write to the API server again.
    """
    async with AsyncExitStack() as stack:
        export = TraceExport("elasticjob-master", os.environ if config.trace else {})
        stack.callback(export.close)
        facts = JobFacts(sizes=config.sizes, health=config.health)
        controller = Controller(
            framework=config.framework, facts=facts, holds_exits=not config.standalone
        )
        job = None
        store: Store = FileStore(config.state_file) if config.state_file else NoStore()
        if not config.standalone:
            from elasticjob_master.cluster.kubernetes_job import KubernetesJob

            agent = f"{names.MASTER}/{config.job_name}"
            kube = await stack.enter_async_context(connect(user_agent=agent, connections=8))
            job = KubernetesJob(
                kube, config, controller, lambda: stored_answers(controller, config)
            )
            if config.state_file is None:
                store = ConfigMapStore(
                    kube, config.namespace, names.state_config_map(config.job_name)
                )
        state_writer = StateWriter(
            store,
            lambda: snapshot.encode(controller, job_uid=config.job_uid, largest=store.largest),
        )
        server = GrpcServer(controller, state_writer, config)
        http = HttpServer(
            controller, state_writer, Metrics(controller, state_writer, server.calls), config
        )
        stack.push_async_callback(http.stop)
        # The HTTP server starts first, because a master that waits for its state is alive.
        http_port = await http.start()
        await _restore_state(controller, store, config, stop)
        if stop.is_set():
            return  # the stored state may not have been read, so it must not be replaced
        snapshot.connect(controller, state_writer, store)
        if config.trace is not None and export.is_on:
            Traces(controller, config, config.trace, export)
        controller.record_event("MasterStarted", f"start {controller.master_starts}")
        await _flush(state_writer)

        stack.push_async_callback(_flush, state_writer)
        grpc_port = await server.start()
        stack.push_async_callback(server.stop)
        http.serve_job()
        log.info(
            "start %d: gRPC on %s, HTTP on port %d",
            controller.master_starts,
            host_port(config.address, grpc_port),
            http_port,
        )
        guard = ConnectionGuard(
            grpc_port,
            server.callers.kinds,
            members=controller.expected_members,
            on_sweep=server.callers.forget_all_but,
        )
        work: list[Awaitable[object]] = [
            control_loop.run(controller),
            state_writer.run(),
            guard.run(),
        ]
        if job is not None:
            work += job.tasks()
        if config.sizes_from_stdin:
            work.append(_follow_standard_input(controller))
        await _until(stop, work)
        controller.record_end()
        if job is not None:
            await job.write_final()  # a master that was taken over raises before this


async def _until(stop: asyncio.Event, work: list[Awaitable[object]]) -> None:
    """Run all tasks until `stop`, or until one of them fails."""
    tasks: list[asyncio.Future[object]] = [asyncio.ensure_future(each) for each in work]
    waiter: asyncio.Task[object] = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in (waiter, *tasks):
            task.cancel()
        await asyncio.gather(waiter, *tasks, return_exceptions=True)


async def _claim_state(store: Store, stop: asyncio.Event) -> bytes | None:
    """Claim and return the stored state, which no earlier master can write afterwards.

    Waits for an API server that does not answer, and for the operator's ConfigMap.
    """
    while not stop.is_set():
        try:
            return await store.claim()
        except StoreFailed as error:
            log.warning("the stored state cannot be claimed, trying again: %s", error)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _RETRY_SECONDS)
    return None


async def _restore_state(
    controller: Controller, store: Store, config: Config, stop: asyncio.Event
) -> None:
    """Restore the stored state if it belongs to this job."""
    data = await _claim_state(store, stop)
    if not data:
        return
    try:
        state = decode(data)
    except UnreadableState as error:
        log.error("starting without the stored state: %s", error)
        return
    if state.job_uid != config.job_uid:
        log.warning("starting without the stored state: it belongs to job UID %s", state.job_uid)
        return
    snapshot.restore(controller, state)


async def _flush(state_writer: StateWriter) -> None:
    try:
        await state_writer.flush()
    except (StoreFailed, TakenOver, CredentialsRefused) as error:
        log.error("the state is not stored: %s", error)


async def _follow_standard_input(controller: Controller) -> None:
    """Resize the job to the number of workers in each line of the standard input.

    Returns at the end of the input, so that the master does not outlive a parent that is killed.
    """
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        text = line.decode(errors="replace").strip()
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text)):
            log.warning("standard input: %r is not a number of workers", text[:40])
            continue
        size = (controller.facts.sizes or {})[names.ROLE_WORKER]
        sizes = {names.ROLE_WORKER: replace(size, desired=int(text))}
        controller.observe_job(replace(controller.facts, sizes=sizes))


async def _run(config: Config) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    log_broken_connections_briefly()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(config, stop)
    # A pod that is deleted, evicted or fails a probe ends so; with 0 it would count as a failure of
    # the master.
    return 0 if config.standalone else names.EXIT_DRAINED


def main() -> None:
    """Run the master of one job."""
    try:
        config = load(sys.argv[1:], os.environ)
    except ConfigError as error:
        sys.exit(f"elasticjob-master: {error}")
    line = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler = log_handler(line)
    if config.log_format == "json":
        handler = json_log_handler(job=f"{config.namespace}/{config.job_name}")
    logging.basicConfig(level=config.log_level, handlers=[handler])
    leave_gone_callers_out_of_the_log()
    open_files.raise_limit()  # each agent needs one
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        sys.exit(uvloop.run(_run(config)))
    except (TakenOver, CredentialsRefused, CannotListen, NoAccess) as error:
        sys.exit(f"elasticjob-master: {error}")


if __name__ == "__main__":
    main()
