"""The operator's settings, from its command line."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from elasticjob_api import names
from elasticjob_api.json_log import LogFormat
from elasticjob_api.prices import check_currency, parse_prices

from elasticjob_operator.core.partitioning import MAX_PARTITIONS

DEFAULT_MASTER_IMAGE = "elasticjob-master:0.1.0"


@dataclass(frozen=True)
class Config:
    """The operator's settings. `--help` describes those that are not explained here.

    Attributes:
        namespace: the only namespace that the operator watches; None means all.
        lease_seconds: the time after which a lease that is not renewed expires.
        partitions: the number of parts into which the namespaces are divided, each with a leader.
        master_image: image of the master, for jobs that set none.
        agent_image: image of the init container that installs the agent, for jobs that set none.
        kueue: whether jobs with Kueue's queue label wait for quota of that queue.
        ended_log: whether each ended pod and job gets a line of JSON on the standard output.
        admission_port: port of the admission webhook; 0 for none.
        admission_configuration: the webhook's configuration in the cluster.
        collector: the variables of the environment that name a collector of traces.
        identity: the holder of the Lease and the reporter of Events. It is unique to the pod, or
            outside of a pod to the process. So a container that restarts in its pod leads again at
            once: its earlier process has certainly ended.
    """

    namespace: str | None
    lease_namespace: str
    lease_seconds: int
    partitions: int
    master_image: str
    agent_image: str
    kubeconfig: Path | None
    network_policies: bool
    http_port: int
    log_format: LogFormat
    ended_log: bool
    prices: str
    currency: str
    kueue: bool
    admission_port: int
    admission_configuration: str
    collector: Mapping[str, str]
    identity: str

    @property
    def lease(self) -> str:
        """Namespace and name of the installation's Lease, the same for all its replicas."""
        return f"{self.lease_namespace}/{names.OPERATOR}"


def parse(arguments: Sequence[str] | None = None) -> Config:
    """Return the settings; exit with a message if the command line is wrong."""
    parser = argparse.ArgumentParser(
        prog="elasticjob-operator",
        description="Turns ElasticJobs, ScalePlans, ScaleIns and ScaleOuts into pods.",
    )
    parser.add_argument("--namespace", help="watch only this namespace (default: all)")
    parser.add_argument(
        "--lease-namespace", default=os.environ.get("POD_NAMESPACE"), help="namespace of the Lease"
    )
    parser.add_argument(
        "--lease-seconds",
        type=partial(_number, "a whole number of seconds", 2, 3600),
        default=15,
        help="time until a lease that is not renewed expires (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=partial(_number, "a whole number", 1, MAX_PARTITIONS),
        default=1,
        help="number of parts into which the namespaces are divided, so that the replicas share "
        f"the work: 1 to {MAX_PARTITIONS} (default: %(default)s)",
    )
    parser.add_argument(
        "--master-image",
        default=DEFAULT_MASTER_IMAGE,
        help="image of master pods (default: %(default)s)",
    )
    parser.add_argument(
        "--agent-image",
        help="image that installs the agent in workers (default: the master image)",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, the service account, ~/.kube/config"
    )
    parser.add_argument(
        "--network-policies",
        action="store_true",
        help="create NetworkPolicies: only a job's pods can connect to its pods",
    )
    parser.add_argument(
        "--http-port",
        type=int,
        default=0,
        help="port of /healthz, /readyz and /metrics (default: none)",
    )
    parser.add_argument(
        "--log-format",
        choices=get_args(LogFormat),
        default="text",
        help="of the operator and of the masters that it starts (default: %(default)s)",
    )
    parser.add_argument(
        "--ended-log",
        action="store_true",
        help="write a line of JSON to stdout for each pod and job that ends",
    )
    parser.add_argument(
        "--prices",
        type=partial(_checked, parse_prices),
        default="",
        metavar="RESOURCE=PRICE,...",
        help="what a core (cpu), a GiB (memory) or one nvidia.com/gpu costs an hour, by which jobs "
        "show their costs (default: none)",
    )
    parser.add_argument(
        "--currency",
        type=partial(_checked, check_currency),
        default="",
        help="of the prices, such as EUR; it is only shown",
    )
    parser.add_argument(
        "--kueue", action="store_true", help="let jobs with Kueue's queue label wait for quota"
    )
    parser.add_argument(
        "--admission-port",
        type=int,
        default=0,
        help="port of the admission webhook, which refuses at kubectl apply (default: none)",
    )
    parser.add_argument(
        "--admission-configuration",
        default=names.OPERATOR,
        help="ValidatingWebhookConfiguration that gets the webhook's certificate "
        "(default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.namespace and chosen.partitions > 1:
        parser.error(
            f"--partitions {chosen.partitions} with --namespace {chosen.namespace}: all jobs of a "
            "namespace belong to one partition; leave out one of the two"
        )
    chosen.lease_namespace = chosen.lease_namespace or chosen.namespace or "default"
    chosen.agent_image = chosen.agent_image or chosen.master_image
    identity = f"{socket.gethostname()}_{os.environ.get('POD_UID') or uuid.uuid4()}"
    collector = {name: os.environ[name] for name in names.ENVS_OTLP if os.environ.get(name)}
    return Config(**vars(chosen), collector=collector, identity=identity)


def _checked(check: Callable[[str], object], text: str) -> str:
    try:
        check(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _number(what: str, least: int, most: int, text: str) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least} to {most}")
    return int(text)
