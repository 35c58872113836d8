"""Cuts values that no decoder can read out of JSON, so that one object does not affect others.

A decoder fails on a whole list or watch event if one value in it is nested more deeply than the
stack allows, or is a text with half of a surrogate pair. Any user who may create objects can store
such a nested value in a field whose schema allows anything.
"""

from __future__ import annotations

import os
import re

import msgspec

MAX_DEPTH = 200
"""The greatest depth of nested lists and maps. No usual object comes near it; a decoder can read
about a thousand levels, or ten thousand since Python 3.12.
"""
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MARK = f'"cut-{os.urandom(16).hex()}"'.encode()
"""Replaces a value that is cut out. It is random, so no user can write it into an object."""


def cut(data: bytes) -> bytes:
    """Return the JSON with a mark in place of every value that is too deep or has a surrogate.

    This takes about half a second for two megabytes of brackets: call it in a thread.
    """
    parts: list[bytes] = []
    depth = 0
    kept = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += (data[kept : token.start()], _MARK)
        elif first in b"]}":
            if depth == MAX_DEPTH + 1:
                kept = token.end()
            depth -= 1
        elif depth <= MAX_DEPTH and _SURROGATE.search(token[0]):
            parts += (data[kept : token.start()], _MARK)
            kept = token.end()
    if depth <= MAX_DEPTH:
        parts.append(data[kept:])
    return b"".join(parts)


def was_cut(raw: msgspec.Raw) -> bool:
    """Return whether a value was cut out of this one."""
    return _MARK in bytes(raw)
