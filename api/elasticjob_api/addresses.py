"""Joins addresses and ports, also those of clusters that have IPv6 only."""

from __future__ import annotations


def host_port(host: str, port: int | str) -> str:
    """Return `host:port`; an IPv6 address is put in brackets, as in `[fd00::5]:8476`."""
    is_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_ipv6 else f"{host}:{port}"
