"""The master's configuration, read from its environment and command line and validated once."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.health import Health, OnStall
from elasticjob_api.json_log import LogFormat
from elasticjob_api.limits import LISTED_MEMBERS
from elasticjob_api.prices import check_currency, parse_prices
from elasticjob_api.replica_spec import OnWorldChange
from elasticjob_api.traces import Context, parse_context

from elasticjob_master.core.rendezvous.rules import ALL_INDICES, RoleSize

T = TypeVar("T")
_OPTIONS_OF_HEALTH = {
    "--lost-seconds": "lostSeconds",
    "--stall-seconds": "stallSeconds",
    "--straggler-seconds": "stragglerSeconds",
    "--on-stall": "onStall",
}


class ConfigError(Exception):
    """A setting is missing or invalid; the message names it and says what to do."""


@dataclass(frozen=True)
class Tls:
    """The certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Config:
    """Everything that is fixed while the master runs.

    Attributes:
        token: callers must send it; None only with `--insecure`.
        tls: None only with `--insecure`.
        sizes: the roles of a master without Kubernetes. With Kubernetes None, as the ElasticJob has
            them.
        sizes_from_stdin: each line of standard input is the number of workers, and the master ends
            with the input.
        trace: the span of the job, if the job is traced.
        prices: of resources, for an hour; empty if the job shows no costs.
        listed_members: members of a world up to which each of them is sent the whole list.
    """

    job_name: str
    job_uid: str
    namespace: str
    pod_name: str
    framework: str
    address: str
    grpc_port: int
    http_port: int
    token: str | None
    tls: Tls | None
    sizes: Mapping[str, RoleSize] | None = None
    sizes_from_stdin: bool = False
    state_file: Path | None = None
    log_level: str = "INFO"
    log_format: LogFormat = "text"
    health: Health = field(default_factory=Health)
    trace: Context | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""
    listed_members: int = LISTED_MEMBERS

    @property
    def more_addresses(self) -> tuple[str, ...]:
        """Further addresses to listen on: localhost, to which a forwarded port of the pod leads.

        None if the address is a loopback one, which pods of the embedded cluster share, or means
        every address.
        """
        try:
            address = ipaddress.ip_address(self.address)
        except ValueError:  # a name of this machine
            return ()
        if address.is_loopback or address.is_unspecified:
            return ()
        return (_loopback(),)

    @property
    def standalone(self) -> bool:
        """Whether the master runs without Kubernetes."""
        return self.sizes is not None


_IPV6_LOOPBACK = "::1"


def _loopback() -> str:
    """Return this host's loopback address: that of IPv6 only where there is no IPv4."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError:
        return _IPV6_LOOPBACK
    return "127.0.0.1"


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """Return the configuration.

    Raises `ConfigError`; exits for `--help` and for a bad command line.
    """
    options = _parser().parse_args(arguments)
    if options.insecure and not options.standalone:
        raise ConfigError("--insecure is only possible with --standalone")
    if options.sizes_from_stdin and not options.standalone:
        raise ConfigError("--sizes-from-stdin is only possible with --standalone")
    need = _optional if options.standalone else _required
    framework = options.framework or need(environment, names.ENV_FRAMEWORK) or "custom"
    if framework not in FRAMEWORKS:
        raise ConfigError(
            f"{names.ENV_FRAMEWORK} is {framework!r}; it must be one of {', '.join(FRAMEWORKS)}"
        )
    sizes = _sizes(options) if options.standalone else None
    address = _loopback()
    token = None
    tls = None
    if not options.insecure:
        address = "::" if address == _IPV6_LOOPBACK else "0.0.0.0"  # noqa: S104
        token = _required(environment, names.ENV_TOKEN)
        tls = _tls(environment)
    return Config(
        job_name=need(environment, names.ENV_JOB_NAME) or "standalone",
        job_uid=need(environment, names.ENV_JOB_UID),
        namespace=need(environment, names.ENV_NAMESPACE),
        pod_name=need(environment, names.ENV_POD_NAME),
        framework=framework,
        address=options.address or environment.get(names.ENV_POD_IP) or address,
        grpc_port=_port("--grpc-port", options.grpc_port),
        http_port=_port("--http-port", options.http_port),
        token=token,
        tls=tls,
        sizes=sizes,
        sizes_from_stdin=options.sizes_from_stdin,
        state_file=_state_file(options.state_file),
        log_level=options.log_level.upper(),
        log_format=_log_format(options, environment),
        health=_health(options),
        trace=parse_context(_optional(environment, names.ENV_TRACEPARENT)),
        prices=_read(environment, names.ENV_PRICES, parse_prices),
        currency=_read(environment, names.ENV_CURRENCY, check_currency),
        listed_members=options.listed_members,
    )


def _tls(environment: Mapping[str, str]) -> Tls:
    certificate = _required(environment, names.ENV_TLS_CERT)
    return Tls(certificate.encode(), _required(environment, names.ENV_TLS_KEY).encode())


def _sizes(options: argparse.Namespace) -> dict[str, RoleSize]:
    desired = options.workers
    if desired is None:
        desired = options.max or options.min
    if not 1 <= options.min <= desired or (options.max is not None and desired > options.max):
        given = f"--min {options.min}, --workers {desired}, --max {options.max}"
        raise ConfigError(f"{given}: not 1 <= min <= workers <= max")
    changes = options.on_world_change
    return {
        names.ROLE_WORKER: RoleSize(
            options.min,
            desired,
            kept=changes == "Keep",
            notified=changes == "Notify",
            without_restarts=ALL_INDICES if options.failure_ends else frozenset(),
        ),
    }


def _port(option: str, port: int) -> int:
    """Return a port; gRPC would take only the lower 16 bits of a larger number."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"{option} is {port}; it must be 0 (any free one) to 65535")
    return port


def _state_file(path: Path | None) -> Path | None:
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(
            f"--state-file is {path}; it must be a file, existing or not, in an existing folder"
        )
    return path


def _log_format(options: argparse.Namespace, environment: Mapping[str, str]) -> LogFormat:
    chosen = options.log_format or environment.get(names.ENV_LOG_FORMAT) or "text"
    known: tuple[LogFormat, ...] = get_args(LogFormat)
    if chosen not in known:
        raise ConfigError(f"{names.ENV_LOG_FORMAT} is {chosen!r}; it must be one of {known}")
    return known[known.index(chosen)]


def _health(options: argparse.Namespace) -> Health:
    """Return `spec.health` from the options; they are for a master without Kubernetes only."""
    given = {
        option: (name, value)
        for option, name in _OPTIONS_OF_HEALTH.items()
        if (value := getattr(options, name)) is not None
    }
    if given and not options.standalone:
        raise ConfigError(
            f"{', '.join(given)}: in a pod this is set by spec.health of the ElasticJob"
        )
    for option, (name, value) in given.items():
        try:
            msgspec.convert({name: value}, Health)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{option} is {value}: {error}") from error
    return msgspec.convert(dict(given.values()), Health)


def _read(environment: Mapping[str, str], name: str, read: Callable[[str], T]) -> T:
    """Return a variable as `read` returns its text, which is empty if it is not set."""
    try:
        return read(environment.get(name, ""))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise ConfigError(
            f"{name} is not set; the operator sets it in a master's pod "
            "(or try --standalone --insecure)"
        )
    return value


def _optional(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elasticjob-master",
        description="The master of one elastic training job. "
        "In a pod everything comes from the environment.",
    )
    parser.add_argument(
        "--standalone", action="store_true", help="run without Kubernetes, for tests and local use"
    )
    parser.add_argument(
        "--min", type=int, default=1, metavar="N", help="standalone: fewest workers (default 1)"
    )
    parser.add_argument(
        "--max", type=int, metavar="N", help="standalone: most workers (default: --workers)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="standalone: workers expected (default: --max or --min)",
    )
    parser.add_argument(
        "--sizes-from-stdin",
        action="store_true",
        help="standalone: each line is the number of workers from then on; end with the input",
    )
    for option, name in _OPTIONS_OF_HEALTH.items():
        values: dict[str, Any] = {"type": int, "metavar": "N"}
        if name == "onStall":
            values = {"choices": get_args(OnStall)}
        parser.add_argument(option, dest=name, help=f"standalone: as spec.health.{name}", **values)
    parser.add_argument(
        "--on-world-change",
        default="Restart",
        choices=get_args(OnWorldChange),
        help="standalone: as onWorldChange of the workers",
    )
    parser.add_argument(
        "--failure-ends",
        action="store_true",
        help="standalone: a failure of a worker ends the job, so the others do not start again",
    )
    parser.add_argument(
        "--listed-members",
        type=int,
        default=LISTED_MEMBERS,
        metavar="N",
        help="members of a larger world fetch the list of all when their program asks for it "
        f"(default {LISTED_MEMBERS})",
    )
    parser.add_argument("--insecure", action="store_true", help="standalone: neither TLS nor token")
    parser.add_argument(
        "--framework", choices=sorted(FRAMEWORKS), help=f"instead of ${names.ENV_FRAMEWORK}"
    )
    parser.add_argument(
        "--address",
        metavar="IP",
        help=f"where to listen (default: ${names.ENV_POD_IP}; with --insecure the loopback one)",
    )
    for option, port in (("--grpc-port", names.GRPC_PORT), ("--http-port", names.HTTP_PORT)):
        parser.add_argument(
            option,
            type=int,
            default=port,
            metavar="PORT",
            help=f"default: {port}; 0: any free one, which is logged",
        )
    parser.add_argument(
        "--state-file",
        type=Path,
        metavar="FILE",
        help="store the state there and not in a ConfigMap",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="default: info",
    )
    parser.add_argument(
        "--log-format",
        choices=get_args(LogFormat),
        help=f"default: ${names.ENV_LOG_FORMAT}, or text",
    )
    return parser
