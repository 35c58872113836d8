"""Makes calls whose answers nothing reads: the client's HTTP/2 window is closed."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub

from bench import grpc_client
from tests.support.master_process import Master, certificates
from tests.support.wait import until


async def unread_calls(
    master: Master,
    token: str,
    draw: Callable[[], tuple[str, bytes]],
    *,
    connections: int,
    calls: int,
) -> list[grpc_client.Connection]:
    """Make calls over connections that read no answer.

    Args:
        master: the master.
        token: the token of the client.
        draw: returns the method and the message of the next call.
        connections: the number of connections.
        calls: the number of calls on each of them.
    """
    context = None
    if not master.insecure:
        context = ssl.create_default_context(cadata=certificates()[0])
        context.set_alpn_protocols(["h2"])
    made = []
    async with master.channel(token) as reader:
        for _ in range(connections):
            connection = await grpc_client.connect(
                master.grpc_port, tls=context, token=token, reads=False
            )
            made.append(connection)
            await _make_calls(connection, draw, calls)
            # The server takes the calls one after another, so it has taken those above.
            await JobServiceStub(reader).GetStatus(
                job_pb2.GetStatusRequest(), timeout=20, wait_for_ready=True
            )
    return made


async def _make_calls(
    connection: grpc_client.Connection, draw: Callable[[], tuple[str, bytes]], calls: int
) -> None:
    for _ in range(calls):
        method, message = draw()

        def ready(message: bytes = message) -> bool:
            return connection.takes(message) or connection.lost

        await until("the server reads", ready)
        if connection.lost:
            return
        connection.send(connection.call(method, lambda _answer: None), message, last=True)
