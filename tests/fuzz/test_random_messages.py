"""Bounds the inputs of the fuzz tests, which are drawn in the event loop of other calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticjob_api.v1 import agent_pb2
from google.protobuf.message import Message

from tests.support.fuzz.random_messages import MOST_VALUES, RandomMessages


def values_in(value: object) -> int:
    """Return the number of values and messages in a message."""
    if isinstance(value, Message):
        return 1 + sum(values_in(each) for _, each in value.ListFields())
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str | bytes):
        return sum(map(values_in, value))
    return 1


def test_no_message_is_so_large_that_drawing_it_keeps_other_calls_from_their_answers() -> None:
    generator = RandomMessages(1, {})
    most = max(values_in(generator.message(agent_pb2.AgentMessage.DESCRIPTOR)) for _ in range(1000))
    assert 3000 < most < MOST_VALUES + 100, "large, and bounded"
