"""Reads the agent's configuration from its environment, so that a wrong pod fails at its start."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.drain_times import DEFAULT_DRAIN_SECONDS
from elasticjob_api.frameworks import FRAMEWORKS


class ConfigError(Exception):
    """An environment variable is missing or has a bad value."""


@dataclass(frozen=True)
class Config:
    """Identity of this member, address and credentials of its master, and the agent's limits."""

    pod_name: str
    pod_uid: str
    role: str
    index: int
    incarnation: int
    address: str
    node_name: str
    slots: int
    framework: str
    devices: tuple[str, int] | None
    master_host: str
    token: str | None
    ca: bytes | None
    peer_identity: bytes | None
    process_restart_limit: int
    in_process_elastic: bool
    drain_seconds: float
    sigterm_delay_seconds: float
    standby: str
    memory_limit: int
    state_folder: Path | None
    state_bytes: int


def load(environment: Mapping[str, str]) -> Config:
    """Return the configuration in an environment; raises ConfigError for a bad variable."""
    token = environment.get(names.ENV_TOKEN)
    ca = environment.get(names.ENV_CA)
    if bool(token) != bool(ca):
        missing = names.ENV_CA if token else names.ENV_TOKEN
        raise ConfigError(
            f"{missing} is not set: the token and the CA are needed together "
            "(or neither, without TLS)"
        )
    pod_name = _text(environment, names.ENV_POD_NAME)
    state_folder = environment.get(names.ENV_STATE_FOLDER)
    framework = FRAMEWORKS.get(environment.get(names.ENV_FRAMEWORK, ""))
    return Config(
        pod_name=pod_name,
        pod_uid=_text(environment, names.ENV_POD_UID),
        role=_text(environment, names.ENV_ROLE),
        index=_number(environment, names.ENV_INDEX),
        incarnation=_number(environment, names.ENV_INCARNATION, default=0),
        address=environment.get(names.ENV_POD_IP) or _own_address(),
        node_name=environment.get(names.ENV_NODE_NAME, ""),
        slots=_number(environment, names.ENV_SLOTS, default=1, least=1),
        framework=environment.get(names.ENV_FRAMEWORK, ""),
        devices=_devices(environment),
        master_host=_master_host(environment),
        token=token or None,
        ca=ca.encode() if ca else None,
        peer_identity=environment.get(names.ENV_PEER_IDENTITY, "").encode() or None,
        process_restart_limit=_number(environment, names.ENV_PROCESS_RESTART_LIMIT, default=0),
        in_process_elastic=framework is not None and framework.in_process_elastic,
        drain_seconds=_number(environment, names.ENV_DRAIN_SECONDS, default=DEFAULT_DRAIN_SECONDS),
        sigterm_delay_seconds=_number(environment, names.ENV_SIGTERM_DELAY_SECONDS, default=0),
        standby=environment.get(names.ENV_STANDBY, "None"),
        memory_limit=_number(environment, names.ENV_MEMORY_LIMIT, default=0),
        state_folder=Path(state_folder) if state_folder else None,
        state_bytes=_number(environment, names.ENV_STATE_BYTES, default=0),
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise ConfigError(f"{name} is not set; the operator sets it in the pods of an ElasticJob")
    return value


def _number(
    environment: Mapping[str, str], name: str, *, default: int | None = None, least: int = 0
) -> int:
    text = environment.get(name, "") if default is not None else _text(environment, name)
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ConfigError(f"{name}={text!r} must be a whole number, {least} or more")
    return int(text)


def _devices(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the variable that shows GPUs to a process and their number; None if undivided."""
    text = environment.get(names.ENV_DEVICES, "")
    variable, equals, count = text.partition("=")
    if not text:
        return None
    if not (variable and equals and count.isascii() and count.isdigit()):
        raise ConfigError(
            f"{names.ENV_DEVICES}={text!r} must be a variable and a number, "
            "such as CUDA_VISIBLE_DEVICES=4"
        )
    return variable, int(count)


def _master_host(environment: Mapping[str, str]) -> str:
    """Return the Service's address from the variable that the kubelet sets, else its DNS name."""
    service = _text(environment, names.ENV_MASTER_SERVICE)
    address = environment.get(names.service_host_env(service))
    return address or f"{service}.{_text(environment, names.ENV_NAMESPACE)}.svc"


def _own_address() -> str:
    """Return the address that this host's name resolves to."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        return str(found[0][4][0])
    except OSError as error:
        raise ConfigError(
            f"{names.ENV_POD_IP} is not set and the host name does not resolve: {error}"
        ) from error
