"""Gives this thread, and the processes that it starts, a network of its own, as with IPv6 only."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def own_network() -> Iterator[None]:
    """Use an empty network. Skips the test where the user may not make a network namespace."""
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        if _libc.unshare(_NEW_NETWORK) != 0:
            pytest.skip(f"no network namespace of its own: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            assert _libc.setns(before, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(before)


@contextmanager
def ipv6_only(*addresses: str) -> Iterator[None]:
    """Use a network with these addresses and the loopback one, and without any IPv4 address.

    Skips the test where the kernel has no IPv6, too.
    """
    with own_network():
        for command in (
            "ip link set lo up",
            "ip -4 address flush dev lo",
            *(f"ip address add {address}/128 dev lo nodad" for address in addresses),
        ):
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"{command}: {done.stderr.strip()}")
        yield
