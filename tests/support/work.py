"""Counts the work of a function, so that tests can bound it without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
Trace = Callable[[FrameType, str, Any], Any]


def counted(function: Callable[[], T]) -> tuple[T, int]:
    """Return the function's result, and how many calls of Python and C functions it has made."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = function()
    finally:
        sys.setprofile(before)
    return result, calls


def steps(function: Callable[[], object]) -> int:
    """Return how many instructions of Python a function takes.

    A loop counts with each of its turns, which need not call anything.
    """
    taken = 0

    def count(frame: FrameType, event: str, argument: Any) -> Trace:
        nonlocal taken
        taken += event == "opcode"
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(before)
    return taken
