"""Spans of a job's trace, and their identifiers.

Each span is made after the fact, from times that its program knows anyway. Trace and spans have
identifiers that follow from UIDs of Kubernetes. So operator and master name each other's spans
without a word between them, and a program that starts again makes no others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_HEADER = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]([0-9a-f])")
Value = str | int | float


class Context(NamedTuple):
    """A span of a trace, as W3C's Trace Context names it: in hexadecimal digits, not all zero."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def header(self) -> str:
        """The text of a `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"

    def child(self, kind: str, uid: str) -> Context:
        """Return the span of this kind about the object with this UID."""
        digest = hashlib.sha256(f"{kind}/{self.trace_id}/{self.span_id}/{uid}".encode()).hexdigest()
        return self._replace(span_id=digest[:16])


def parse_context(text: str) -> Context | None:
    """Return what a `traceparent` names; None for a text that is not one of its version 00."""
    found = _HEADER.fullmatch(text)
    if found is None or int(found[1], 16) == 0 or int(found[2], 16) == 0:
        return None
    return Context(found[1], found[2], sampled=bool(int(found[3], 16) & 1))


def context_of_job(uid: str, given: str) -> Context:
    """Return the span of a job.

    Args:
        uid: the job's UID, whose digits are the trace's identifier.
        given: the `traceparent` of the span that has created the job; its trace contains the job
            then. A text that is none counts as missing.
    """
    own = re.sub("[^0-9a-f]", "", uid)
    if len(own) != 32 or int(own, 16) == 0:
        own = hashlib.sha256(uid.encode()).hexdigest()[:32]
    return (parse_context(given) or Context(own, "")).child("job", uid)


@dataclass(frozen=True)
class Span:
    """Something that has taken time; `start` and `end` are in seconds since the epoch.

    Attributes:
        parent: the identifier of the span that it is a part of; empty for none.
        failed: it has not come to what it was for.
    """

    name: str
    context: Context
    parent: str
    start: float
    end: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    failed: bool = False
