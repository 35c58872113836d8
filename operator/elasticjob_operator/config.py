"""The operator's settings, from its command line."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MASTER_IMAGE = "elasticjob-master:0.1.0"


@dataclass(frozen=True)
class Config:
    """The operator's settings.

    Attributes:
        namespace: the only namespace it watches; None means all.
        lease_namespace: namespace of the Lease for leader election.
        lease_seconds: how long the lease is valid without being renewed.
        master_image: image of master pods whose job names none.
        agent_image: image of the init container that installs the agent, where a job names none.
        kubeconfig: a kubeconfig; None means $KUBECONFIG, the pod's service account, or ~/.kube/config.
        network_policies: whether each job gets a NetworkPolicy.
        http_port: port of health, readiness and metrics; 0 for none.
        json_logs: whether log lines are JSON.
        kueue: whether jobs with Kueue's label for a queue wait for quota of that queue.
        ended_log: whether each pod and each job that has ended gets a line of JSON on the standard output.
        identity: the holder of the Lease, and the reporter of Events. Unique to this process, or to this pod: a
            container that is started again in its pod leads again at once, as its earlier process has certainly ended.
    """

    namespace: str | None
    lease_namespace: str
    lease_seconds: int
    master_image: str
    agent_image: str
    kubeconfig: Path | None
    network_policies: bool
    http_port: int
    json_logs: bool
    ended_log: bool
    kueue: bool
    identity: str


def parse(arguments: Sequence[str] | None = None) -> Config:
    """Return the settings; ends the process with a message when the command line is wrong."""
    parser = argparse.ArgumentParser(
        prog="elasticjob-operator",
        description="Turns ElasticJobs, ScalePlans, ScaleIns and ScaleOuts into pods.",
    )
    parser.add_argument("--namespace", help="look at this namespace only (default: all)")
    parser.add_argument(
        "--lease-namespace", default=os.environ.get("POD_NAMESPACE"), help="namespace of the Lease"
    )
    parser.add_argument(
        "--lease-seconds",
        type=_lease_seconds,
        default=15,
        help="its duration (default: %(default)s)",
    )
    parser.add_argument(
        "--master-image",
        default=DEFAULT_MASTER_IMAGE,
        help="image of master pods (default: %(default)s)",
    )
    parser.add_argument(
        "--agent-image",
        help="image that brings the agent to workers (default: that of master pods)",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, the service account, ~/.kube/config"
    )
    parser.add_argument(
        "--network-policies",
        action="store_true",
        help="let only a job's own pods connect to its pods",
    )
    parser.add_argument(
        "--http-port", type=int, default=0, help="of /healthz, /readyz, /metrics (default: none)"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--ended-log",
        action="store_true",
        help="a line of JSON for each ended pod and job on stdout",
    )
    parser.add_argument(
        "--kueue", action="store_true", help="jobs with Kueue's queue label wait for its quota"
    )
    chosen = parser.parse_args(arguments)
    return Config(
        namespace=chosen.namespace,
        lease_namespace=chosen.lease_namespace or chosen.namespace or "default",
        lease_seconds=chosen.lease_seconds,
        master_image=chosen.master_image,
        agent_image=chosen.agent_image or chosen.master_image,
        kubeconfig=chosen.kubeconfig,
        network_policies=chosen.network_policies,
        http_port=chosen.http_port,
        json_logs=chosen.log_format == "json",
        ended_log=chosen.ended_log,
        kueue=chosen.kueue,
        identity=f"{socket.gethostname()}_{os.environ.get('POD_UID') or uuid.uuid4()}",
    )


def _lease_seconds(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of seconds from 2 to 3600"
        )
    return int(text)
