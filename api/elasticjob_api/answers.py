"""Packs and unpacks the last answers of a job's master, which are stored for after its end.

The master writes them into a ConfigMap that other programs may write as well. So a reader accepts a
limited number of bytes, and replaces values that cannot be shown.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from elasticjob_api.elasticjob import ElasticJobStatus, Failure
from elasticjob_api.last_words import exit_text
from elasticjob_api.times import time_or_none
from elasticjob_api.v1 import job_pb2 as pb

MOST_BYTES = 256 * 1024
"""The greatest size of the packed answers in the ConfigMap."""
MOST_TEXT = 4 * 1024 * 1024
"""The greatest size of the unpacked JSON."""
MOST_MEMBERS = 500
"""The greatest number of listed members; all members are counted."""
_MOST_NAMES = 100
_LONGEST_TEXT = 300
"""Characters of a message or a reason."""
_TIMES = frozenset(
    {"time", "began", "created", "completed", "decided", "measured"}
    | {"last_report_time", "stalled_since", "retry_time", "resources_retry_time"}
)
"""The fields that are seconds since the epoch."""
_LAST_SECOND = 253_402_300_799.0
"""The end of the year 9999, after which Python has no dates."""
_DEPTH = 16
_GZIP = 31
"""The form of zlib that is gzip's; the module of this name takes longer to import."""


class UnreadableAnswers(Exception):
    """The stored bytes are not answers of a master; the message is the reason."""


def pack(answers: pb.StoredAnswers, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return answers as compressed JSON of a limited size, without unimportant parts if needed."""
    packed = pb.StoredAnswers()
    packed.CopyFrom(answers)
    _shorten(packed)
    data = _compressed(packed)
    for what, leave_out in _DISPENSABLE:
        if len(data) <= most_bytes:
            break
        leave_out(packed)
        packed.left_out.append(what)
        data = _compressed(packed)
    return data


def unpack(data: bytes, *, only: Collection[str] = ()) -> pb.StoredAnswers:
    """Return the answers that are stored, or only these fields of them, by their JSON names.

    The history of a long training takes longer to read than all the rest. Raises
    `UnreadableAnswers`.
    """
    if len(data) > MOST_BYTES:
        raise UnreadableAnswers(f"it has {len(data)} bytes; a master writes at most {MOST_BYTES}")
    answers = pb.StoredAnswers()
    try:
        inflater = zlib.decompressobj(wbits=_GZIP)
        text = inflater.decompress(data, MOST_TEXT)
        if not inflater.eof:
            raise UnreadableAnswers(
                f"it is damaged, or longer than the {MOST_TEXT} bytes that a master writes"
            )
        if only:
            parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            text = msgspec.json.encode({name: parts[name] for name in only if name in parts})
        json_format.Parse(text, answers, ignore_unknown_fields=True, max_recursion_depth=_DEPTH)
    except (
        zlib.error,
        json_format.ParseError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        raise UnreadableAnswers(f"it is damaged: {error}") from error
    _make_showable(answers)
    return answers


def outcome(status: ElasticJobStatus) -> pb.Outcome:
    """Return the end of a job by its status."""
    return pb.Outcome(
        phase=status.phase or "Pending",
        message=_shortened(status.message),
        completed=time_or_none(status.completion_time) or 0.0,
        restarts=status.restarts,
        uncounted_restarts=status.uncounted_restarts,
        retries=status.retries,
        failures=[_pod_failure(each) for each in status.failures],
    )


def _pod_failure(failure: Failure) -> pb.PodFailure:
    code = "" if failure.exit_code is None else exit_text(failure.exit_code)
    reason = "" if code and failure.reason == "Error" else failure.reason
    return pb.PodFailure(
        time=time_or_none(failure.finished_at) or 0.0,
        pod=failure.pod,
        reason=", ".join(filter(None, (reason, code))),
        message=failure.message,
        action=failure.action,
    )


def _compressed(answers: pb.StoredAnswers) -> bytes:
    text = json_format.MessageToJson(answers, indent=None)
    return zlib.compress(text.encode(), level=6, wbits=_GZIP)


def _shorten(answers: pb.StoredAnswers) -> None:
    """Limit the lists and texts whose size the training determines."""
    del answers.status.progress.stragglers[_MOST_NAMES:]
    for plan in answers.plans.plans:
        plan.reason = _shortened(plan.reason)
        plan.message = _shortened(plan.message)
    for member in answers.members.members:
        member.check_problem = _shortened(member.check_problem)


def _without_metrics(answers: pb.StoredAnswers) -> None:
    for sample in answers.history.samples:
        sample.ClearField("metrics")


def _without_members(answers: pb.StoredAnswers) -> None:
    answers.ClearField("members")
    answers.ClearField("ranks")


_DISPENSABLE: tuple[tuple[str, Callable[[pb.StoredAnswers], None]], ...] = (
    ("members", _without_members),
    ("metrics over time", _without_metrics),
    ("events", lambda answers: answers.history.ClearField("events")),
    ("samples", lambda answers: answers.history.ClearField("samples")),
)
"""The parts that are left out, the first one first. The report itself always remains."""


def _make_showable(message: Message) -> None:
    """Replace unknown enum values, infinite numbers, and characters that move a cursor."""
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _make_map_showable(value, field.message_type.fields_by_name["value"])
        elif field.is_repeated:
            for position, each in enumerate(value):
                if isinstance(each, Message):
                    _make_showable(each)
                else:
                    value[position] = _showable(each, field)
        elif isinstance(value, Message):
            _make_showable(value)
        else:
            setattr(message, field.name, _showable(value, field))


def _make_map_showable(found: dict[str, object], field: FieldDescriptor) -> None:
    for key, value in list(found.items()):
        if not key.isprintable():
            del found[key]
        else:
            found[key] = _showable(value, field)


def _showable(value: object, field: FieldDescriptor) -> object:
    if isinstance(value, str):
        return "".join(each if each.isprintable() else " " for each in value)
    if field.enum_type is not None and value not in field.enum_type.values_by_number:
        return 0
    if isinstance(value, float):
        if not math.isfinite(value):
            return 0.0
        if field.name in _TIMES:
            return min(max(value, 0.0), _LAST_SECOND)
    return value


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[: _LONGEST_TEXT - 1]}…"
