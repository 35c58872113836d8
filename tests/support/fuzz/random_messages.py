"""Generates random messages: well-formed ones with every kind of value, made from their
descriptors, and corrupted bytes.

All draws depend on the seed only, so a failure can be repeated.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

TEXTS = (
    "", " ", "a", "0", "-1", "worker", "None", "null", "a b", "a:1", "a\nb: c", "../../etc/passwd",
    "%s%n%x{0}",
    "'\";--", "\0", "\x7f", "\u202e", "é", "\U0001f600", "x" * 63, "x" * 64, "x" * 253, "x" * 254,
    "x" * 5000,
    "ß" * 300,
)  # fmt: skip
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.05,
    1e-300,
    1e300,
    -1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    5e-324,
)
_MOST_DEPTH = 4
MOST_VALUES = 10_000
"""Values of a message with all messages in it: lists of lists of lists would take seconds to draw,
and nothing else runs in a test's event loop meanwhile, such as the calls that wait for an answer.
"""
_INTEGERS: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_ENUM: (-(2**31), 2**31 - 1),
}

Known = Mapping[str, Callable[[], Sequence[Any]]]
"""Values that exist in the server under test, by field name: some inputs pass its checks."""


class RandomMessages:
    """Draws messages, texts and damaged bytes from a seeded generator.

    Tests draw from `rng` too, so that one seed repeats everything.
    """

    def __init__(self, seed: int | str, known: Known) -> None:
        self.rng = random.Random(seed)
        self._known = known
        self._known_share = 0.75
        self._values_left = MOST_VALUES

    def message(self, kind: Descriptor, *, depth: int = 0) -> Message:
        """Return a well-formed message; every other one is plausible in most of its fields."""
        rng = self.rng
        made = message_factory.GetMessageClass(kind)()
        if depth == 0:
            self._known_share = rng.choice((0.75, 0.98))
            self._values_left = MOST_VALUES
        self._values_left -= 1
        chosen = {oneof.name: rng.choice(oneof.fields) for oneof in kind.oneofs}
        for field in kind.fields:
            if (
                field.containing_oneof is not None
                and chosen[field.containing_oneof.name] is not field
            ):
                continue
            if rng.random() < 0.85:
                self._fill(made, field, depth)
        return made

    def corrupted(self, data: bytes) -> bytes:
        """Return bytes near those of a message, or far from them."""
        rng = self.rng
        kind = self.rng.randrange(6)
        if kind == 0 or not data:
            return rng.randbytes(int(2 ** rng.uniform(0, 12)))
        at = rng.randrange(len(data))
        if kind == 1:
            return data[:at]
        if kind == 2:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        if kind == 3:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        if kind == 4:
            return data[at:] + data + data[:at]
        return data + b"\x0a" * rng.randrange(1, 300)

    def text(self) -> str:
        """Return a text."""
        if self.rng.random() < 0.9:
            return self.rng.choice(TEXTS)
        return "".join(self._character() for _ in range(self.rng.randrange(40)))

    def _character(self) -> str:
        return chr(self.rng.choice((self.rng.randrange(32, 127), self.rng.randrange(1, 0xD7FF))))

    def _fill(self, made: Message, field: FieldDescriptor, depth: int) -> None:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            entries = getattr(made, field.name)
            for _ in self._some():
                entries[self._scalar(kind.fields_by_name["key"])] = self._scalar(
                    kind.fields_by_name["value"]
                )
        elif kind is not None:
            if depth < _MOST_DEPTH:
                into = getattr(made, field.name)
                if field.is_repeated:
                    into.extend(self.message(kind, depth=depth + 1) for _ in self._some())
                else:
                    into.CopyFrom(self.message(kind, depth=depth + 1))
        elif field.is_repeated:
            getattr(made, field.name).extend(self._scalar(field) for _ in self._some())
        else:
            setattr(made, field.name, self._scalar(field))

    def _some(self) -> Iterator[None]:
        """Yield for each value of a list, as long as the message may have more values."""
        count = 3000 if self.rng.random() < 0.01 else self.rng.choice((0, 1, 1, 2, 3, 3, 70))
        for _ in range(count):
            if self._values_left <= 0:
                return
            yield

    def _scalar(self, field: FieldDescriptor) -> Any:
        self._values_left -= 1
        rng = self.rng
        known = self._known[field.name]() if field.name in self._known else ()
        if known and rng.random() < self._known_share:
            return rng.choice(known)
        if field.type == FieldDescriptor.TYPE_STRING:
            return self.text()
        if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(int(2 ** rng.uniform(0, 14)))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            some = struct.unpack("<d", rng.randbytes(8))[0]
            return rng.choice((*FLOATS, some, rng.uniform(0, 100)))
        least, most = _INTEGERS[field.type]
        near = (0, 1, 2, 3, 10, 2**31, 2**53, 2**53 + 1, most - 1, most, least)
        drawn = rng.choice((*near, rng.getrandbits(rng.randrange(1, 64)), rng.randrange(100)))
        return min(max(drawn, least), most)
