"""DLRover: ScalePlan of elastic.iml.github.io/v1alpha1. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_REPLICAS
from elasticjob_api.limits import MAX_INDEX, MAX_ROLES
from elasticjob_api.meta import Json
from elasticjob_api.resources import amount_error, bounded_resource, name_error
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_cli.convert import jobs
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.naming import job_name, role_name
from elasticjob_cli.convert.report import Report, shown

_POD = re.compile(r".*-edljob-([A-Za-z][A-Za-z-]*)-([0-9]{1,5})")
_SOURCES = {"manual": "Manual", "auto": "Auto"}


def scale_plan(document: Fields, report: Report) -> Json | None:
    """Convert a ScalePlan of theirs."""
    metadata = jobs.metadata(document, of_job=False)
    spec = document.map("spec")
    owner = spec.text("ownerJob", required=True)
    ours: Json = {"jobName": job_name(owner) if owner else "unknown"}
    if ours["jobName"] != owner:
        report.differs(
            spec.where("ownerJob"), f"{owner} is {ours['jobName']} here", ("spec", "jobName")
        )
    manual = spec.boolean("manualScaling", default=False)
    kind = metadata.get("labels", {}).get("scale-type", "manual" if manual else "")
    if kind.lower() in _SOURCES:
        ours["source"] = _SOURCES[kind.lower()]
    roles: Json = {}
    for field in ("replicaResourceSpecs", "replicaResourceSpec"):
        for name, group in spec.maps(field).items():
            role = role_name(name.lower())
            if role in roles:
                report.refused(
                    group.path, f"there are two groups {name.lower()}; put both into one"
                )
            elif change := _role(group):
                roles[role] = change
    ours["replicaResourceSpecs"] = roles
    ours["createPods"] = [
        _to_create(each, ours["jobName"], report) for each in spec.list_of_maps("createPods")
    ]
    ours["removePods"] = [
        _named(each, report, resource=False) for each in _pods(spec, "removePods")
    ]
    ours["migratePods"] = [
        _named(each, report, resource=True) for each in _pods(spec, "migratePods")
    ]
    _one_amount_for_each(ours, report)
    _servers(spec, owner, report)
    spec.done()
    ours = {name: value for name, value in ours.items() if value not in ([], {})}
    if len(roles) > MAX_ROLES:
        report.refused(
            "spec.replicaResourceSpecs",
            f"has {len(roles)} roles, but a job has at most {MAX_ROLES}",
        )
    if not ours.keys() & {"replicaResourceSpecs", "createPods", "removePods", "migratePods"}:
        report.refused(
            "spec",
            "changes nothing: give replicaResourceSpecs, createPods, removePods or migratePods",
        )
    report.differs(
        "spec",
        "plans are executed one after the other, within minReplicas and maxReplicas; leaving members save first; "
        "each plan of the same spec needs a name of its own",
        ("spec",),
    )
    written = {
        "apiVersion": names.API_VERSION,
        "kind": "ScalePlan",
        "metadata": metadata,
        "spec": ours,
    }
    return None if report.failed else jobs.checked(written, ScalePlan, report)


def _role(group: Fields) -> Json:
    """Return size and resources of a role, without those that are not given."""
    found: Json = {}
    if (replicas := group.integer("replicas", 0, MAX_REPLICAS)) is not None:
        found["replicas"] = replicas
    if resource := resources(group, "resource"):
        found["resource"] = resource
    group.done()
    return found


def _one_amount_for_each(ours: Json, report: Report) -> None:
    """Leave out what a plan sets for all members of a role where it sets another amount for one of them.

    There the first holds for pods that are created later, here for every member.
    """
    named = [("createPods", pod) for pod in ours["createPods"]] + [
        ("migratePods", pod) for pod in ours["migratePods"]
    ]
    for role, change in list(ours["replicaResourceSpecs"].items()):
        of_role = [(field, pod) for field, pod in named if pod.get("role") == role]
        for name, amount in list(change.get("resource", {}).items()):
            own_amounts = (
                (field, pod.get("resource", {}).get(name, amount)) for field, pod in of_role
            )
            others = [(field, own) for field, own in own_amounts if own != amount]
            if not others:
                continue
            field, own = others[0]
            del change["resource"][name]
            message = f"{name} {amount} is left out, as a member in {field} gets {own}; here it would be every member's"
            if len(of_role) >= change.get("replicas", MAX_REPLICAS):
                report.differs(
                    f"spec.replicaResourceSpecs.{role}",
                    message,
                    ("spec", "replicaResourceSpecs", role),
                )
            else:
                report.lost(
                    f"spec.replicaResourceSpecs.{role}", f"{message}: send it in a plan of its own"
                )
        if not change.get("resource", True):
            del change["resource"]
        if not change:
            del ours["replicaResourceSpecs"][role]


def resources(group: Fields, field: str) -> Json:
    """Return amounts by the names that resources have in Kubernetes."""
    read = group.map(field)
    found = Json()
    for name in read.names():
        ours = bounded_resource(name)
        if name_error(ours):
            read.lose(
                name,
                "is no resource of Kubernetes: name it as its device plugin does, such as huawei.com/npu",
            )
        elif (amount := read.quantity(name)) is not None:
            if error := f"{ours} is given twice" if ours in found else amount_error(ours, amount):
                read.report.refused(read.where(name), error)
            found[ours] = amount
    return found


def _pods(spec: Fields, name: str) -> Sequence[Fields]:
    """Return a list of pods, which may be given by their names alone."""
    return [
        Fields(
            {"name": each} if isinstance(each, str) else each,
            f"{spec.where(name)}[{position}]",
            spec.report,
        )
        for position, each in enumerate(spec.items(name))
    ]


def _servers(spec: Fields, owner: str, report: Report) -> None:
    """Read the parameter servers that new members are told.

    Here they are told those of their world.
    """
    own = re.compile(rf"{re.escape(owner)}-(?:edljob-)?ps-[0-9]+(?:\.[^:]*)?(?::[0-9]+)?")
    hosts = spec.texts("psHosts")
    if others := [host for host in hosts if not own.fullmatch(host)]:
        message = f"{shown(others[0])} is no parameter server of the job; servers outside of it are told by env"
        report.lost(spec.where("psHosts"), message)
    elif hosts:
        message = (
            "left out: each world tells its members the job's own servers, by index, in TF_CONFIG or "
            "ELASTICJOB_PS_HOSTS; after a change of servers the training restores its checkpoint"
        )
        report.differs(spec.where("psHosts"), message)


def _to_create(pod: Fields, job: str, report: Report) -> Json:
    found: Json = {"role": role_name(pod.text("type", "worker").lower())}
    rank = pod.integer("rankIndex", 0, MAX_INDEX)
    number = pod.integer("id", 0, MAX_INDEX)
    index = rank if rank is not None else number
    if index is not None:
        found["index"] = index
    if number is not None and number != index:
        report.differs(
            pod.where("id"), "left out: a member has its index alone", ("spec", "createPods")
        )
    if pod.text("name"):
        report.differs(
            pod.where("name"), "left out: a pod is named by role and index", ("spec", "createPods")
        )
    if pod.text("service"):
        name = f"{found['role']}-{'<index>' if index is None else index}.{job}"
        report.differs(
            pod.where("service"),
            f"left out: the member's host name is {name}",
            ("spec", "createPods"),
        )
    if resource := resources(pod, "resource"):
        found["resource"] = resource
    pod.done()
    return found


def _named(pod: Fields, report: Report, *, resource: bool) -> Json:
    """Return role and index of a pod, by its fields or its name, and the resources it shall have."""
    name = pod.text("name")
    from_name = _POD.fullmatch(name) if name else None
    kind = pod.text("type", from_name[1] if from_name else "")
    rank = pod.integer("rankIndex", 0, MAX_INDEX)
    number = pod.integer("id", 0, MAX_INDEX)
    index = rank if rank is not None else number
    if index is None and from_name:
        index = int(from_name[2])
    pod.raw("service")  # of a pod that goes
    if not kind or index is None or index > MAX_INDEX:
        report.refused(
            pod.path,
            "names no pod: give type and rankIndex, or a name <job>-edljob-<type>-<number>",
        )
        return {}
    report.differs(
        pod.path,
        "by role and index, which stay when a pod is replaced; the number in their name is another one after that",
        ("spec",),
    )
    found: Json = {"role": role_name(kind.lower()), "index": index}
    if resource and (amounts := resources(pod, "resource")):
        found["resource"] = amounts
    elif not resource:
        pod.raw("resource")  # of a pod that goes
    pod.done()
    return found
