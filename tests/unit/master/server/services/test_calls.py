"""Checks what a caller gets when a call is refused."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest
from elasticjob_api.refusals import BadRequest
from elasticjob_master.server.services.calls import refusing


@pytest.mark.parametrize("value", ["é" * 20_000, "\n" * 20_000, "x" * 2_000_000])
async def test_a_refusal_of_any_length_arrives_with_its_status_its_field_and_what_to_do(
    value: str,
) -> None:
    async def refuse(_request: bytes, _context: Any) -> bytes:
        raise BadRequest(f"dataset '{value}' is too long; name it in 63 characters")

    make: Any = grpc.unary_unary_rpc_method_handler
    methods = {"Create": make(refusing(make(refuse), "Create"))}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("job", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        create: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/job/Create")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(b"")
    await server.stop(None)
    details = refused.value.details() or ""
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, details
    assert details.startswith("dataset '")
    assert details.endswith("name it in 63 characters")
