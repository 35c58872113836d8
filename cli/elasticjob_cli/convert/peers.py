"""What the jobs of a file, and their pods, are called at the other operators and here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from elasticjob_api.limits import MAX_ROLES

from elasticjob_cli.convert import dl_operator, dlrover, et_operator, framework_controller, kubeflow
from elasticjob_cli.convert.common_fields import job_name, role_name

_INDEX = r"(?P<index>[0-9]{1,5})"
_PODS = rf"{{job}}-(?:launcher|(?P<type>{{types}})-{_INDEX})"
_PODS_OF_DLROVER = rf"{{job}}-(?:edljob-)?(?P<type>{{types}})-{_INDEX}"
_PODS_OF_DL_OPERATOR = rf"(?P<type>{{types}})-{{job}}-{_INDEX}(?:-service)?"
_PODS_OF_A_JOB_SET = rf"{{job}}-(?P<type>{{types}})-0-{_INDEX}"
_NO_MEMBERS = ("dlrover-master",)
"""Groups that do not become roles."""
_LONGEST_NAME = 253


@dataclass(frozen=True)
class Group:
    """A group of pods of a job, for its members here.

    Attributes:
        role: the role of the members.
        path: the path of the group in the document.
        first: the index of its first member; above 0 where other groups have the same role.
        single: whether it is one member of the role, such as the Master beside Workers.
    """

    role: str
    path: str
    first: int = 0
    single: bool = False


@dataclass(frozen=True)
class PeerJob:
    """A job of another operator.

    Attributes:
        name: its name; empty if the API server makes the name.
        ours: its name here.
        groups: its groups of pods, by the type in the labels and names of the pods.
        leader: the group that its operator calls master besides.
        pods: the pattern of the names of its pods and of their Services, with type and index.
        in_subdomain: whether a host name is the pod's with the job's after it.
        own_labels: the labels that its templates set themselves.
    """

    name: str
    ours: str
    groups: Mapping[str, Group]
    leader: Group | None
    pods: str
    in_subdomain: bool
    own_labels: frozenset[str]

    @property
    def roles(self) -> list[str]:
        """The roles of its members."""
        return list(dict.fromkeys(group.role for group in self.groups.values()))

    def group(self, kind: str) -> Group | None:
        """Return the group of a type; None if there is none."""
        leader = self.leader if kind == "master" else None
        return self.groups.get(kind.lower(), leader)

    def path(self, role: str) -> str:
        """Return the path of the groups of a role in the document."""
        return next((each.path for each in self.groups.values() if each.role == role), "spec")


Jobs = Mapping[str, PeerJob]
"""The jobs of a file by their names."""


@dataclass(frozen=True)
class _Form:
    field: str
    pods: str = _PODS
    in_subdomain: bool = False


_FORMS: Mapping[tuple[str, str], _Form] = MappingProxyType(
    {
        (kubeflow.V1_API_VERSION, "PyTorchJob"): _Form("pytorchReplicaSpecs"),
        (kubeflow.V1_API_VERSION, "TFJob"): _Form("tfReplicaSpecs"),
        (kubeflow.V1_API_VERSION, "JAXJob"): _Form("jaxReplicaSpecs"),
        (kubeflow.V1_API_VERSION, "MPIJob"): _Form("mpiReplicaSpecs"),
        (kubeflow.MPI_API_VERSION, "MPIJob"): _Form("mpiReplicaSpecs", in_subdomain=True),
        (kubeflow.TRAINER_API_VERSION, "TrainJob"): _Form("trainer", _PODS_OF_A_JOB_SET, True),
        (et_operator.API_VERSION, "TrainingJob"): _Form("etReplicaSpecs"),
        (dlrover.API_VERSION, "ElasticJob"): _Form("replicaSpecs", _PODS_OF_DLROVER),
        (framework_controller.API_VERSION, "Framework"): _Form("taskRoles", pods=""),
        (dl_operator.API_VERSION, "MXJob"): _Form("", _PODS_OF_DL_OPERATOR),
        (dl_operator.API_VERSION, "TFJob"): _Form("", _PODS_OF_DL_OPERATOR),
    }
)
"""FrameworkController's labels are kept, by framework_names.py, and its pods have no host names."""


def jobs_of(documents: Iterable[Any]) -> Jobs:
    """Return the jobs among documents that have a name."""
    found = (peer_job(document) for document in documents)
    return {job.name: job for job in found if job is not None and job.name}


def peer_job(document: Any) -> PeerJob | None:
    """Return the job that a document is; None if it is none, or none that can be converted."""
    form = _FORMS.get((str(_inner(document, "apiVersion")), str(_inner(document, "kind"))))
    if form is None:
        return None
    named = list(_named(document, form))
    if not 1 <= len(named) <= MAX_ROLES:
        return None
    groups = {kind.lower(): Group(_role(kind, form), path) for kind, path, _ in named}
    leader = groups.get("chief") or groups.get("launcher")
    if form.field == "pytorchReplicaSpecs":
        leader = None
        if {"master", "worker"} <= groups.keys():
            groups["master"] = Group("worker", groups["master"].path, single=True)
            groups["worker"] = Group("worker", groups["worker"].path, first=1)
    elif leader is None and "worker" in groups:
        leader = Group(groups["worker"].role, groups["worker"].path, single=True)
    name = _inner(_inner(document, "metadata"), "name")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        name = ""
    labels = (
        _inner(_inner(_inner(group, "template"), "metadata"), "labels") for _, _, group in named
    )
    own = frozenset(key for each in labels if isinstance(each, dict) for key in each)
    types = "|".join(map(re.escape, groups))
    pods = form.pods.replace("{job}", re.escape(name)).replace("{types}", types) if name else ""
    return PeerJob(name, job_name(name), groups, leader, pods, form.in_subdomain, own)


def _role(kind: str, form: _Form) -> str:
    if form.field in ("pytorchReplicaSpecs", "trainer"):
        return "worker"
    if form.field in ("tfReplicaSpecs", "jaxReplicaSpecs") and kind == "Master":
        return "chief"
    return role_name(kind if form.field == "taskRoles" else kind.lower())


def _named(document: Any, form: _Form) -> Iterator[tuple[str, str, Any]]:
    """Yield the type of each group of pods, its path, and its content."""
    spec = _inner(document, "spec")
    groups = _inner(spec, form.field or "replicaSpecs")
    if not form.field and groups is None:
        groups = spec
    path = f"spec.{form.field}" if form.field else "spec"
    if form.field == "trainer":
        yield "node", path, {"template": {"metadata": spec}}
    elif isinstance(groups, list):
        for position, group in enumerate(groups):
            kind = _inner(group, "name" if form.field else "replicaType")
            task = _inner(_inner(group, "task"), "pod")
            yield str(kind), f"{path}[{position}]", {"template": task} if form.field else group
    elif isinstance(groups, dict):
        for kind, group in groups.items():
            if kind.lower() not in _NO_MEMBERS:
                yield kind, f"{path}.{kind}", group


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
