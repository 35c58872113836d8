"""The gRPC server: TLS, the job's token on every call, and limits on what a caller may cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.v1 import (
    agent_pb2,
    discovery_pb2,
    discovery_pb2_grpc,
    horovod_pb2,
    horovod_pb2_grpc,
    job_pb2,
    remote_shell_pb2,
    remote_shell_pb2_grpc,
    rendezvous_pb2,
    rendezvous_pb2_grpc,
    shards_pb2,
    shards_pb2_grpc,
)
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.connection_limits import Holder
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server.access import OPEN_TO_ALL, READING, Access, Tokens
from elasticjob_master.server.callers import Callers
from elasticjob_master.server.metrics import CallCounts
from elasticjob_master.server.services.agent_service import AgentService
from elasticjob_master.server.services.calls import refusing
from elasticjob_master.server.services.discovery_service import DiscoveryService
from elasticjob_master.server.services.horovod_service import HorovodService
from elasticjob_master.server.services.job_service import JobService
from elasticjob_master.server.services.remote_shell_service import RemoteShellService
from elasticjob_master.server.services.rendezvous_service import RendezvousService
from elasticjob_master.server.services.shard_service import ShardService

LONGEST_MESSAGE = 1024 * 1024
_OPTIONS = [
    ("grpc.max_receive_message_length", LONGEST_MESSAGE),
    ("grpc.max_send_message_length", -1),  # a world of thousands of members is large
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", 256),  # of one connection; an agent needs two
    # Detect an unreachable node before its members count as lost.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Close connections without calls. `connection_guard` closes those without a token even sooner.
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.so_reuseport", 0),
]
_MODULES = (agent_pb2, discovery_pb2, shards_pb2, job_pb2, rendezvous_pb2, horovod_pb2)
_SERVICES = tuple(
    service.full_name
    for module in (*_MODULES, remote_shell_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
_HOLDERS: Mapping[Access, Holder] = {
    Access.ALL: "caller",
    Access.READ: "reader",
    Access.NONE: "stranger",
}
_LAST_HEALTH_SECONDS = 0.5


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses a call without the right token, before its message is read."""

    def __init__(self, token: str | None, calls: CallCounts, callers: Callers) -> None:
        self._tokens = Tokens(token)
        self._calls = calls
        self._callers = callers
        stream: Any = grpc.stream_stream_rpc_method_handler(_refuse_stranger)
        self._no_token: Any = callers.noting(stream, _refuse_stranger, "stranger")
        self._no_right: Any = callers.noting(stream, _refuse_reader, "reader")
        self._handlers: dict[tuple[str, Access], Any] = {}

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler of the call, or one that refuses it."""
        shown = dict(details.invocation_metadata or ()).get(names.TOKEN_METADATA)
        access = self._tokens.access(shown)
        if access is Access.NONE and details.method not in OPEN_TO_ALL:
            self._calls.refused["token"] += 1
            return self._no_token
        if access is Access.READ and details.method not in (*OPEN_TO_ALL, *READING):
            self._calls.refused["right"] += 1
            return self._no_right
        key = details.method, access
        if key not in self._handlers:
            handler = await continuation(details)
            if handler is None:
                self._calls.refused["method"] += 1
                return None  # no such method exists
            behave = refusing(handler, details.method)
            self._handlers[key] = self._callers.noting(handler, behave, _HOLDERS[access])
        self._calls.accepted[details.method.removeprefix("/")] += 1
        return self._handlers[key]


async def _refuse_stranger(_messages: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        f"{names.TOKEN_METADATA} must be 'Bearer <token of this job>'",
    )


async def _refuse_reader(_messages: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.PERMISSION_DENIED, "this token only reads; the job's own token may do more"
    )


def leave_gone_callers_out_of_the_log() -> None:
    """Keep grpc from logging a traceback for each answer whose caller has disconnected.

    grpc is silent about callers that it knows to be disconnected, but it often finds out only by
    the failed write.
    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_not_a_gone_caller)


def _is_not_a_gone_caller(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("ExecuteBatchError raised in core")


class CannotListen(Exception):
    """A port or the certificate cannot be used; the message names it."""


class GrpcServer:
    """The gRPC server of one master."""

    def __init__(self, controller: Controller, state_writer: StateWriter, config: Config) -> None:
        self._config = config
        self.calls = CallCounts()
        self.callers = Callers(controller.expected_members)
        interceptors = [TokenInterceptor(config.token, self.calls, self.callers)]
        self._server = server = grpc.aio.server(interceptors=interceptors, options=_OPTIONS)
        agents = AgentService(controller, self.callers, config.listed_members)
        discovery = DiscoveryService(controller)
        shards = ShardService(controller, state_writer)
        rendezvous = RendezvousService(controller, state_writer)
        shells = RemoteShellService(controller, self.callers)
        self._job_service = JobService(controller, config)
        self._health = health.aio.HealthServicer()
        server.add_generic_rpc_handlers((agents.handler(), self._job_service.handler()))
        discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(discovery, server)
        shards_pb2_grpc.add_ShardServiceServicer_to_server(shards, server)
        rendezvous_pb2_grpc.add_RendezvousServiceServicer_to_server(rendezvous, server)
        horovod_pb2_grpc.add_HorovodServiceServicer_to_server(HorovodService(controller), server)
        remote_shell_pb2_grpc.add_RemoteShellServiceServicer_to_server(shells, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )

    async def start(self) -> int:
        """Listen and serve; return the port."""
        at = host_port(self._config.address, self._config.grpc_port)
        try:
            port = self._listen(at)
            for address in self._config.more_addresses:
                at = host_port(address, port)
                self._listen(at)
        except RuntimeError as error:
            raise CannotListen(
                f"cannot listen on {at}: the port is in use, the address is not this host's, or "
                f"{names.ENV_TLS_CERT} and {names.ENV_TLS_KEY} are not a certificate and its key "
                f"({error})"
            ) from error
        await self._server.start()
        for service in ("", *_SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return port

    def _listen(self, at: str) -> int:
        if self._config.tls is None:
            return self._server.add_insecure_port(at)
        pair = (self._config.tls.key, self._config.tls.certificate)
        return self._server.add_secure_port(at, grpc.ssl_server_credentials([pair]))

    async def stop(self) -> None:
        """Refuse new calls, give the running ones a moment to finish, and stop."""
        self._job_service.end_watches()
        # A client that watches the health and does not read would delay this.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_HEALTH_SECONDS):
                await self._health.enter_graceful_shutdown()
        await self._server.stop(0.2)
