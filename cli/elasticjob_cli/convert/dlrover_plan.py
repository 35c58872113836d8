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

from elasticjob_cli.convert import common_fields, jobs
from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.report import Report, shown

_POD = re.compile(r".*(?:-edljob-(?P<type>[A-Za-z][A-Za-z-]*)|-(?P<last>[A-Za-z]+))-([0-9]{1,5})")
"""The name of a pod; DLRover itself takes the last two words of it."""
_SOURCES = {"manual": "Manual", "auto": "Auto"}
_CREATED = ("spec", "createPods")


def scale_plan(document: Fields) -> Json | None:
    """Convert a ScalePlan of DLRover."""
    report = document.report
    metadata = common_fields.metadata(document, of_job=False)
    spec = document.map("spec")
    ours: Json = {"jobName": common_fields.owner_name(spec, "ownerJob")}
    manual = spec.boolean("manualScaling", default=False)
    kind = metadata.get("labels", {}).get("scale-type", "manual" if manual else "")
    if kind.lower() in _SOURCES:
        ours["source"] = _SOURCES[kind.lower()]
    roles = _roles(spec)
    changes: Json = {
        "replicaResourceSpecs": roles,
        "createPods": [_to_create(pod, ours["jobName"]) for pod in spec.list_of_maps("createPods")],
        "removePods": [_to_remove(pod) for pod in _pods(spec, "removePods")],
        "migratePods": [_to_migrate(pod) for pod in _pods(spec, "migratePods")],
    }
    _drop_contradicted_amounts(changes, report)
    _servers(spec)
    changes = {name: value for name, value in changes.items() if value}
    if len(roles) > MAX_ROLES:
        spec.refused(
            "replicaResourceSpecs", f"has {len(roles)} roles, but a job has at most {MAX_ROLES}"
        )
    if not changes:
        message = "give replicaResourceSpecs, createPods, removePods or migratePods"
        report.refused("spec", f"changes nothing: {message}")
    message = (
        "plans are executed one after the other, within minReplicas and maxReplicas; leaving "
        "members save first; each plan of the same spec needs its own name"
    )
    report.differs("spec", message, ("spec",))
    written = {
        "apiVersion": names.API_VERSION,
        "kind": "ScalePlan",
        "metadata": metadata,
        "spec": ours | changes,
    }
    return jobs.checked(written, ScalePlan, report)


def _roles(spec: Fields) -> Json:
    """Return the changes by role."""
    roles: Json = {}
    for field in ("replicaResourceSpecs", "replicaResourceSpec"):
        for name, group in spec.maps(field).items():
            role = role_name(name.lower())
            if role in roles:
                group.refused("", f"there are two groups {name.lower()}; merge both")
            elif change := _role(group):
                roles[role] = change
    return roles


def _role(group: Fields) -> Json:
    """Return size and resources of a role, without missing ones."""
    found: Json = {}
    if (replicas := group.integer("replicas", 0, MAX_REPLICAS)) is not None:
        found["replicas"] = replicas
    if resource := resources(group, "resource"):
        found["resource"] = resource
    return found


def _drop_contradicted_amounts(changes: Json, report: Report) -> None:
    """Drop a role's amount of a resource if the plan gives another amount to one of its members.

    There the role's amount is for pods that are created later, here for every member.
    """
    named = [(field, pod) for field in ("createPods", "migratePods") for pod in changes[field]]
    roles = changes["replicaResourceSpecs"]
    for role, change in list(roles.items()):
        of_role = [(field, pod) for field, pod in named if pod.get("role") == role]
        for name, amount in list(change.get("resource", {}).items()):
            other = _other_amount(of_role, name, amount)
            if other is None:
                continue
            field, own = other
            del change["resource"][name]
            reason = f"as a member in {field} gets {own}; here it would be every member's"
            message = f"{name} {amount} is left out, {reason}"
            where = f"spec.replicaResourceSpecs.{role}"
            if len(of_role) >= change.get("replicas", MAX_REPLICAS):
                report.differs(where, message, ("spec", "replicaResourceSpecs", role))
            else:
                report.lost(where, f"{message}: send it in its own plan")
        if not change.get("resource", True):
            del change["resource"]
        if not change:
            del roles[role]


def _other_amount(
    pods: Sequence[tuple[str, Json]], name: str, amount: object
) -> tuple[str, object] | None:
    """Return the first other amount of a resource among pods, with the field of its pod."""
    for field, pod in pods:
        own = pod.get("resource", {}).get(name, amount)
        if own != amount:
            return field, own
    return None


def resources(group: Fields, field: str) -> Json:
    """Return amounts by the names that resources have in Kubernetes."""
    read = group.map(field)
    found: Json = {}
    for name in read.names():
        ours = bounded_resource(name)
        if name_error(ours):
            remedy = "use its device plugin's name, such as huawei.com/npu"
            message = f"is not a resource of Kubernetes: {remedy}"
            read.lose(name, message)
            continue
        amount = read.quantity(name)
        if amount is None:
            continue
        error = f"{ours} is given twice" if ours in found else amount_error(ours, amount)
        if error:
            read.refused(name, error)
        found[ours] = amount
    return found


def _pods(spec: Fields, name: str) -> Sequence[Fields]:
    """Return a list of pods; a text is a pod's name."""
    found = []
    for position, each in enumerate(spec.items(name)):
        values = {"name": each} if isinstance(each, str) else each
        found.append(Fields(values, f"{spec.where(name)}[{position}]", spec.report))
    return found


def _servers(spec: Fields) -> None:
    """Read the parameter servers of new members; here members get the servers of their world."""
    owner = re.escape(spec.text("ownerJob"))
    own = re.compile(rf"{owner}-(?:edljob-)?ps-[0-9]+(?:\.[^:]*)?(?::[0-9]+)?")
    hosts = spec.texts("psHosts")
    others = [host for host in hosts if not own.fullmatch(host)]
    if others:
        message = "is not a parameter server of the job; set external servers by env"
        spec.lost("psHosts", f"{shown(others[0])} {message}")
    elif hosts:
        message = (
            "left out: members of each world get the job's own servers, by index, in TF_CONFIG or "
            "ELASTICJOB_PS_HOSTS; after a change of servers the training restores its checkpoint"
        )
        spec.differs("psHosts", message)


def _index(pod: Fields) -> tuple[int | None, int | None]:
    """Return the index of a pod, which is its rank or else its number, and the number."""
    rank = pod.integer("rankIndex", 0, MAX_INDEX)
    number = pod.integer("id", 0, MAX_INDEX)
    if rank is None:
        return number, number
    return rank, number


def _to_create(pod: Fields, job: str) -> Json:
    role = role_name(pod.text("type", "worker").lower())
    found: Json = {"role": role}
    index, number = _index(pod)
    if index is not None:
        found["index"] = index
    if number is not None and number != index:
        pod.differs("id", "left out: a member has an index only", _CREATED)
    if pod.text("name"):
        pod.differs("name", "left out: a pod is named by role and index", _CREATED)
    if pod.text("service"):
        host = f"{role}-{'<index>' if index is None else index}.{job}"
        pod.differs("service", f"left out: the member's host name is {host}", _CREATED)
    if resource := resources(pod, "resource"):
        found["resource"] = resource
    pod.done()
    return found


def _to_remove(pod: Fields) -> Json:
    found = _named(pod)
    if pod.raw("resource") is not None:
        pod.differs("resource", "left out: the pod goes", ("spec",))
    pod.done()
    return found


def _to_migrate(pod: Fields) -> Json:
    """Return role and index of a pod, and its new resources."""
    found = _named(pod)
    amounts = resources(pod, "resource")
    if found and amounts:
        found["resource"] = amounts
    pod.done()
    return found


def _named(pod: Fields) -> Json:
    """Return role and index of a pod, by its fields or its name."""
    name = pod.text("name")
    from_name = _POD.fullmatch(name)
    kind = pod.text("type", (from_name["type"] or from_name["last"]) if from_name else "")
    index, _ = _index(pod)
    if index is None and from_name:
        index = int(from_name[3])
    if pod.text("service"):
        pod.differs("service", "left out: role and index name the pod", ("spec",))
    if not kind or index is None or index > MAX_INDEX:
        message = "give type and rankIndex, or a name <job>-<type>-<number>"
        pod.refused("", f"names no pod: {message}")
        return {}
    message = "by role and index, which a replacing pod keeps; the number in DLRover's name changes"
    pod.differs("", message, ("spec",))
    return {"role": role_name(kind.lower()), "index": index}
