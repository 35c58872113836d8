"""Sends random inputs to every method that a server lists, and checks the answers."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import elasticjob_api.v1
import grpc
import grpc.aio
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.fuzz.random_messages import RandomMessages

CONNECT = "elasticjob.v1.AgentService.Connect"
UNARY_SECONDS = 20.0
"""A longer answer time is a problem: requests for a wait ask for a fraction of a second here."""
WATCH_SECONDS = 1.5
TOGETHER = 24
Code = grpc.StatusCode
_OURS = ("Internal error from Core", "Locally cancelled by application!")
"""The statuses at this end of a stream when either end breaks it off."""
Metadata = tuple[tuple[str, str | bytes], ...]
_NEVER = frozenset({Code.UNKNOWN, Code.INTERNAL, Code.DATA_LOSS})
"""The statuses of a server that did not expect the request."""


async def methods(channel: grpc.aio.Channel, metadata: Metadata) -> list[MethodDescriptor]:
    """Ask a server for its methods."""
    for module in pkgutil.iter_modules(elasticjob_api.v1.__path__):
        importlib.import_module(f"elasticjob_api.v1.{module.name}")
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(metadata=metadata)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = (await call.read()).list_services_response.service
    call.cancel()
    pool = descriptor_pool.Default()
    return [method for service in listed for method in pool.FindServiceByName(service.name).methods]


@dataclass
class Attack:
    """Sends random inputs over one channel.

    Attributes:
        allowed: the only permitted statuses; None: any except those of an unexpected error.
        answers: statuses by method.
        problems: wrong answers.
    """

    channel: grpc.aio.Channel
    generator: RandomMessages
    methods: list[MethodDescriptor]
    metadata: Metadata = ()
    allowed: frozenset[grpc.StatusCode] | None = None
    sent: int = 0
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unasked = list(self.methods)

    async def run(self, inputs: int) -> None:
        """Send this number of inputs."""
        end = self.sent + inputs
        await asyncio.gather(*(self._some(end) for _ in range(TOGETHER)))

    async def _some(self, end: int) -> None:
        while self.sent < end and len(self.problems) < 20:
            unasked = self.unasked[:1]
            self.unasked = self.unasked[1:]
            method = unasked[0] if unasked else self.generator.rng.choice(self.methods)
            if method.client_streaming:
                await self._stream(method)
            else:
                self.sent += 1
                await self._ask(method)

    def _draw(self, method: MethodDescriptor, *, corrupt_share: float = 0.3) -> bytes:
        data = self.generator.message(method.input_type).SerializeToString()
        return (
            self.generator.corrupted(data) if self.generator.rng.random() < corrupt_share else data
        )

    async def _ask(self, method: MethodDescriptor) -> None:
        path = f"/{method.containing_service.full_name}/{method.name}"
        data = self._draw(method)
        if method.server_streaming:
            watching: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(
                path
            )
            # A refusal has the time of every other answer.
            seconds = WATCH_SECONDS if self.allowed is None else UNARY_SECONDS
            watch = watching(data, timeout=seconds, metadata=self.metadata)
            try:
                received = await watch.read()
                if isinstance(received, bytes):
                    self._check_answer(method, data, Code.OK, answer=received)
                    watch.cancel()
                else:
                    self._check_answer(
                        method, data, await watch.code(), details=await watch.details()
                    )
            except grpc.aio.AioRpcError as error:
                self._check_answer(method, data, error.code(), details=error.details())
            return
        try:
            asking: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(path)
            answer = await asking(data, timeout=UNARY_SECONDS, metadata=self.metadata)
            self._check_answer(method, data, Code.OK, answer=answer)
        except grpc.aio.AioRpcError as error:
            self._check_answer(method, data, error.code(), details=error.details())

    async def _stream(self, method: MethodDescriptor) -> None:
        """Send some messages on one stream; now and then break it off."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        rng = self.generator.rng
        talking: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self.channel.stream_stream(path)
        stream = talking(timeout=UNARY_SECONDS, metadata=self.metadata)
        reading = asyncio.create_task(_drain(stream))
        messages: list[bytes] = []
        if method.full_name == CONNECT and rng.random() < 0.9:
            messages.append(await self._greeting(method))
        try:
            for number in range(rng.randrange(1, 60)):
                if number == len(messages):  # one at a time, so that other calls go on in between
                    messages.append(self._draw(method, corrupt_share=0.02))
                await stream.write(messages[number])
                self.sent += 1
            if rng.random() < 0.1:
                stream.cancel()
            else:
                await stream.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            pass  # rejected in the middle
        await reading
        code = await stream.code()
        details = await stream.details()
        if details in _OURS:
            self.answers[method.full_name, "broken off"] += 1
        else:
            self._check_answer(method, b"|".join(messages), code, details=details)

    async def _greeting(self, method: MethodDescriptor) -> bytes:
        """Return a hello; of a member, if the server accepts the drawn registration."""
        register = next(each for each in self.methods if each.name == "Register")
        made: Any = self.generator.message(register.input_type)
        hello: Any = message_factory.GetMessageClass(method.input_type)()
        hello.hello.pod_uid = made.pod_uid
        hello.hello.running_round = self.generator.rng.choice((0, 0, 0, 1, 2**64 - 1))
        path = f"/{register.containing_service.full_name}/{register.name}"
        data = made.SerializeToString()
        self.sent += 1
        try:
            await self.channel.unary_unary(path)(
                data, timeout=UNARY_SECONDS, metadata=self.metadata
            )
            self._check_answer(register, data, Code.OK)
        except grpc.aio.AioRpcError as error:
            self._check_answer(register, data, error.code(), details=error.details())
        return bytes(hello.SerializeToString())

    def _check_answer(
        self, method: MethodDescriptor, data: bytes, code: grpc.StatusCode, *,
        details: str | None = "",
        answer: bytes | None = None,
    ) -> None:  # fmt: skip
        self.answers[method.full_name, code.name] += 1
        wrong = code in _NEVER if self.allowed is None else code not in self.allowed
        # A watch and a long wait send nothing until something changes. Every other request must be
        # answered.
        watch = method.server_streaming and not method.client_streaming
        if code is Code.DEADLINE_EXCEEDED and details == "Deadline Exceeded" and not watch:
            wrong = wrong or not _asks_to_wait(method, data)
        if answer is not None and not wrong:
            wrong = _parse(method.output_type, answer) is None
        if wrong:
            self.problems.append(f"{method.full_name}({data[:400]!r}): {code.name} {details}")


async def _drain(stream: Any) -> None:
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return


def _asks_to_wait(method: MethodDescriptor, data: bytes) -> bool:
    """Return whether a request asks to wait for longer than we do."""
    request: Any = _parse(method.input_type, data)
    return getattr(request, "wait_seconds", 0) >= UNARY_SECONDS


def _parse(kind: Descriptor, data: bytes) -> Message | None:
    try:
        return message_factory.GetMessageClass(kind).FromString(data)
    except DecodeError:
        return None
