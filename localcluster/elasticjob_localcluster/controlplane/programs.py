"""The programs of the control plane, and their versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "v1.37.2"
ETCD = "v3.7.3"
_MODULES = Path(__file__).parent / "modules"
_VERSION = " ".join(
    f"-X k8s.io/{package}/version.gitVersion={KUBERNETES}"
    for package in ("component-base", "client-go/pkg")
)


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: the name of its file.
        module: the directory of the Go module that pins its sources.
        package: its Go package; programs with the same one are one file under several names.
        version: the arguments that make it print its version.
        fits: a pattern of the version output of an installed program that is used.
        ldflags: the flags of Go's linker.
        release: the version of its release; empty if it is built on every machine.
        tags: the build tags, with which a program leaves out parts.
    """

    name: str
    module: Path
    package: str
    version: tuple[str, ...]
    fits: str
    ldflags: str = "-s -w"
    release: str = ""
    tags: str = ""


def _kubernetes(
    name: str, package: str, *, fits: str, version: tuple[str, ...] = ("--version",)
) -> Program:
    return Program(
        name,
        _MODULES / "kubernetes",
        package,
        version,
        fits,
        f"-s -w {_VERSION}",
        KUBERNETES,
    )


_SAME_MINOR = r"Kubernetes v1\.37\."
KUBECTL = _kubernetes(
    "kubectl",
    "k8s.io/kubernetes/cmd/kubectl",
    fits=r"Client Version: v1\.3[678]\.",  # it may be one minor version off
    version=("version", "--client"),
)
CONTROL_PLANE = (
    Program(
        "etcd",
        _MODULES / "etcd",
        "go.etcd.io/etcd/server/v3",
        ("--version",),
        r"etcd Version: 3\.([6-9]|\d\d)\.",
        release=ETCD,
    ),
    # Linked once, by main.go of the module: they share most of their code.
    _kubernetes("kube-apiserver", ".", fits=_SAME_MINOR),
    _kubernetes("kube-controller-manager", ".", fits=_SAME_MINOR),
    _kubernetes("kube-scheduler", ".", fits=_SAME_MINOR),
)
PROGRAMS = (*CONTROL_PLANE, KUBECTL)
