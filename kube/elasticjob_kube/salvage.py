"""Makes JSON readable in which a value cannot be decoded, so that one object of a list or watch affects no other.

A decoder gives up on a whole answer when a value in it is nested more deeply than its stack is
deep, or is a text with half of a surrogate pair. Whoever may create objects can store the first in
a field whose schema allows anything.
"""

from __future__ import annotations

import re
import secrets

import msgspec

MAX_DEPTH = 200
"""Of lists and maps in each other. No object of Kubernetes comes near; a decoder takes about a
thousand.
"""
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MARK = f'"cut-{secrets.token_hex(16)}"'.encode()
"""In place of what is cut out; nobody can guess it, and so have another object taken for one in
which something was.
"""


def cut(data: bytes) -> bytes:
    """Return the JSON with a mark in place of every value that is too deep and every text with a surrogate.

    It takes about half a second for two megabytes of brackets: call it in a thread.
    """
    parts: list[bytes] = []
    depth = kept = 0
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
    return b"".join((*parts, data[kept:] if depth <= MAX_DEPTH else b""))


def was_cut(raw: msgspec.Raw) -> bool:
    """Whether something was cut out of a value."""
    return _MARK in bytes(raw)
