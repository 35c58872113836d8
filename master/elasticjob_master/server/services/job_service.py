"""JobService: the state of the running job, once or as a watch.

Each watch compares its message once a second. The message is made once for all watches of the same
method and sent only if it has changed. A slow reader misses messages in between and delays no
other client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from elasticjob_api.refusals import LimitReached
from elasticjob_api.v1 import job_pb2 as pb
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.server import answers, protobuf

MOST_WATCHES = 256
_WATCH_SECONDS = 1.0
_SHARED_SECONDS = 0.5
_SERVICE = pb.DESCRIPTOR.services_by_name["JobService"]


class _Shared:
    """A message that all watches of one method share. It stays the same object until it changes."""

    def __init__(self, make: Callable[[], Message]) -> None:
        self._make = make
        self._value: Message | None = None
        self._made_at = 0.0

    def get(self, current: bool) -> Message:
        """Return the value; unless it must be current, it may be up to half a second old."""
        now = asyncio.get_running_loop().time()
        if self._value is None or current or now - self._made_at >= _SHARED_SECONDS:
            value = self._make()
            self._made_at = now
            if value != self._value:
                self._value = value
        assert self._value is not None
        return self._value


class JobService:
    """Serves status, members, world, progress, history, plans, auto-scaling and report."""

    def __init__(self, controller: Controller, config: Config) -> None:
        self._controller = controller
        self._ending = asyncio.Event()
        self._watches = 0
        self._answers: Mapping[str, Callable[[], Message]] = {
            "Status": lambda: answers.status(controller, config),
            "Members": lambda: answers.members(controller),
            "Progress": lambda: answers.progress(controller),
            "History": lambda: protobuf.history(controller.history),
            "Plans": lambda: answers.plans(controller),
            "Autoscaling": lambda: answers.autoscaling(controller),
            "World": lambda: answers.world(controller),
            "Report": lambda: answers.report(controller, config),
        }
        """By the name in `Get<name>` and `Watch<name>`, whose requests are empty."""

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the service's methods."""
        return grpc.method_handlers_generic_handler(
            _SERVICE.full_name, {method.name: self._method(method) for method in _SERVICE.methods}
        )

    def end_watches(self) -> None:
        """Send the last message of each watch and end it, before the master ends."""
        self._ending.set()

    def _method(self, method: MethodDescriptor) -> Any:
        """Return the handler of one method."""
        read = GetMessageClass(method.input_type).FromString
        write = GetMessageClass(method.output_type).SerializeToString
        name = method.name.removeprefix("Watch").removeprefix("Get")
        if method.name == "WatchHistory":
            return grpc.unary_stream_rpc_method_handler(self._watch_history, read, write)
        if method.name == "GetStacks":
            return grpc.unary_unary_rpc_method_handler(self._get_stacks, read, write)
        if method.server_streaming:
            shared = _Shared(self._answers[name])

            async def watch(_request: Message, context: Any) -> None:
                await self._watch(context, shared.get)

            return grpc.unary_stream_rpc_method_handler(watch, read, write)

        async def get(_request: Message, _context: Any) -> Message:
            return self._answers[name]()

        return grpc.unary_unary_rpc_method_handler(get, read, write)

    async def _get_stacks(self, request: pb.GetStacksRequest, _context: Any) -> pb.StackList:
        found = await self._controller.collect_stacks(request.ranks)
        return protobuf.stack_list(found, frozenset(request.ranks))

    async def _watch_history(self, _request: pb.WatchHistoryRequest, context: Any) -> None:
        history = self._controller.history
        last_number = -1

        def new_history(_current: bool) -> pb.History | None:
            nonlocal last_number
            if history.number == last_number:
                return None
            message = protobuf.history(history, last_number)
            last_number = history.number
            return message

        await self._watch(context, new_history)

    async def _watch(self, context: Any, message: Callable[[bool], object | None]) -> None:
        """Write a message at once, after each change, and a last time when the master ends.

        `message` returns it, which must be current if the argument is true. Nothing is written if
        it is None or the same object again.
        """
        if self._watches >= MOST_WATCHES:
            raise LimitReached(
                f"{self._watches} watches are open, which is the limit; "
                "end one, or use the Get methods"
            )
        self._watches += 1
        try:
            last_sent = None
            while True:
                ending = self._ending.is_set()
                new = message(last_sent is None or ending)
                if new is not None and new is not last_sent:
                    await context.write(new)
                    last_sent = new
                if ending:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), _WATCH_SECONDS)
        finally:
            self._watches -= 1
