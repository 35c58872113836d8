"""The command line of each process of the cluster, and the files that they read."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from pathlib import Path

from elasticjob_localcluster.kubeconfig_file import write_kubeconfig

SERVICE_CIDR = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
NODE = "process-node"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CONTROLLERS = CONTROL_PLANE[2:]
# etcd is reached through a socket in the state directory (where every process works), not a port:
# only the cluster's owner can open it. A short relative name, because the kernel allows a socket's
# path 107 characters.
_ETCD = "unix://etcd.sock"
_ETCD_PEER = "unix://etcd-peer.sock"
# The defaults (20 and 50 requests a second) would limit tests with many pods.
_RATE = ("--kube-api-qps=1000", "--kube-api-burst=2000")


def etcd_command(programs: Mapping[str, Path]) -> list[str]:
    """Return the command of etcd.

    It does not wait for the disk, because nothing here outlives a crash anyway.
    """
    return [
        str(programs["etcd"]),
        "--name=dev",
        "--data-dir=etcd",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={_ETCD_PEER}",
        f"--initial-advertise-peer-urls={_ETCD_PEER}",
        f"--initial-cluster=dev={_ETCD_PEER}",
    ]


def api_server_command(programs: Mapping[str, Path], port: int) -> list[str]:
    """Return the command of the API server, which accepts only client certificates and tokens."""
    return [
        str(programs["kube-apiserver"]),
        f"--etcd-servers={_ETCD}",
        "--bind-address=127.0.0.1",
        # By default the address of the default route, which a machine without a network lacks.
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        # No Service leads to it: an endpoint on the loopback address is not allowed.
        "--endpoint-reconciler-type=none",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--client-ca-file=pki/ca.crt",
        "--tls-cert-file=pki/kube-apiserver.crt",
        "--tls-private-key-file=pki/kube-apiserver.key",
        "--kubelet-certificate-authority=pki/ca.crt",
        "--kubelet-client-certificate=pki/apiserver-node-client.crt",
        "--kubelet-client-key=pki/apiserver-node-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--requestheader-client-ca-file=pki/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--proxy-client-cert-file=pki/front-proxy-client.crt",
        "--proxy-client-key-file=pki/front-proxy-client.key",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=pki/service-account.key",
        "--service-account-signing-key-file=pki/service-account.key",
    ]


def controller_commands(programs: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the commands of the controller manager and the scheduler; neither listens anywhere."""
    common = {
        name: [
            str(programs[name]),
            f"--kubeconfig=conf/{name}.kubeconfig",
            "--secure-port=0",
            "--leader-elect=false",
            *_RATE,
        ]
        for name in CONTROLLERS
    }
    common["kube-controller-manager"] += [
        # Pods have loopback addresses here, which endpoints must not have; the node itself knows
        # where Services lead.
        "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller",
        "--use-service-account-credentials=true",
        "--root-ca-file=pki/ca.crt",
        "--service-account-private-key-file=pki/service-account.key",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
    ]
    return common


def node_command(state: Path, capacity: Mapping[str, str]) -> list[str]:
    """Return the command of the process node; `capacity` overrides the machine's resources."""
    return [
        *(sys.executable, "-m", "elasticjob_localcluster.node"),
        *("--kubeconfig", str(state / "conf" / "node.kubeconfig")),
        *("--serving-cert", str(state / "pki" / "node-serving.crt")),
        *("--serving-key", str(state / "pki" / "node-serving.key")),
        *("--client-ca", str(state / "pki" / "ca.crt")),
        *("--name", NODE),
        *("--state", str(state / "node")),
        *(f"--capacity={resource}={amount}" for resource, amount in capacity.items()),
    ]


def write_kubeconfigs(state: Path, port: int) -> None:
    """Write the configuration of the user, of the controllers and of the node."""
    _write_kubeconfig(state / "kubeconfig", state / "pki", "admin", port)
    for name in CONTROLLERS:
        _write_kubeconfig(state / "conf" / f"{name}.kubeconfig", state / "pki", name, port)
    _write_kubeconfig(state / "conf" / "node.kubeconfig", state / "pki", "node-client", port)


def _write_kubeconfig(path: Path, pki: Path, certificate: str, port: int) -> None:
    def data(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    write_kubeconfig(
        path,
        server=f"https://127.0.0.1:{port}",
        authority=data("ca.crt"),
        user={
            "client-certificate-data": data(f"{certificate}.crt"),
            "client-key-data": data(f"{certificate}.key"),
        },
        namespace="default",
    )
