"""Replaces the labels that other operators give to pods in selectors of pods. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elasticjob_api import names
from elasticjob_api.meta import Json

from elasticjob_cli.convert import host_names
from elasticjob_cli.convert.framework_names import INDEX
from elasticjob_cli.convert.labels import Lost, Part, is_of_an_operator, part_of
from elasticjob_cli.convert.peers import Group, Jobs, PeerJob


class _Requirement(NamedTuple):
    key: str
    operator: str
    values: tuple[str, ...]


def replaced(
    found: Json,
    jobs: Jobs,
    own: PeerJob | None,
    *,
    compared: Collection[str] = (),
    equal: bool = False,
) -> tuple[Json, list[str]]:
    """Return a selector of pods with our labels, and in which ways it differs.

    Args:
        found: the selector, with `matchLabels` and `matchExpressions`.
        jobs: the jobs of the file.
        own: the job whose pods have the selector; None if another object has it.
        compared: other keys that are compared, which must not be in the selector.
        equal: whether it can only compare with values, such as that of a Service.

    Raises:
        Lost: a label has no equivalent.
    """
    requirements = [_of_a_task(each) for each in _requirements(found)]
    theirs = [each for each in requirements if part_of(each.key, None)]
    job = _job(theirs, jobs, own)
    theirs = [each for each in theirs if part_of(each.key, job)]
    if job is None and any(is_of_an_operator(each.key) for each in theirs):
        raise Lost(f"{theirs[0].key}: it selects pods of a job that is not in this file")
    if job is None or not theirs:
        changed = requirements != _requirements(found)
        return (_written(found, requirements), []) if changed else (found, [])
    selection = _Selection(job, jobs, equal)
    selection.read(theirs)
    if not {names.LABEL_ROLE, names.LABEL_INDEX} & {
        *compared,
        *(each.key for each in selection.ours),
    }:
        selection.leave_out_the_master()
    left = [each for each in requirements if each not in theirs]
    return _written(found, [*left, *dict.fromkeys(selection.ours)]), selection.notes


def keys(found: Json) -> list[str]:
    """Return the labels that a selector requires."""
    return list(dict.fromkeys(each.key for each in _requirements(found)))


def _of_a_task(requirement: _Requirement) -> _Requirement:
    key = names.LABEL_INDEX if requirement.key == INDEX else requirement.key
    return requirement._replace(key=key)


def _requirements(found: Json) -> list[_Requirement]:
    """Return what a selector requires, or nothing if it is not valid."""
    read = []
    labels = found.get("matchLabels") or {}
    for key, value in labels.items() if isinstance(labels, dict) else ():
        read.append(_Requirement(key, "In", (str(value),)))
    expressions = found.get("matchExpressions") or []
    for each in expressions if isinstance(expressions, list) else ():
        if isinstance(each, dict):
            values = tuple(map(str, _list(each.get("values"))))
            read.append(_Requirement(str(each.get("key")), str(each.get("operator")), values))
    return read


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _written(found: Json, requirements: Sequence[_Requirement]) -> Json:
    labels: Json = {}
    expressions: list[Json] = []
    for key, operator, values in requirements:
        if operator == "In" and len(values) == 1 and key not in labels:
            labels[key] = values[0]
        else:
            listed = {"values": list(values)} if values else {}
            expressions.append({"key": key, "operator": operator, **listed})
    kept = {key: value for key, value in found.items() if not key.startswith("match")}
    parts = {"matchLabels": labels, "matchExpressions": expressions}
    return {**kept, **{name: part for name, part in parts.items() if part}}


def _job(theirs: Sequence[_Requirement], jobs: Jobs, own: PeerJob | None) -> PeerJob | None:
    """Return the job whose pods are selected: the named one, or else the own one."""
    named: list[PeerJob | None] = []
    for each in theirs:
        part = part_of(each.key, None)
        if part is Part.JOB:
            named += map(jobs.get, each.values)
        elif part is Part.POD:
            named += [host_names.job_of_pod(value, jobs) for value in each.values]
    if not named:
        return own
    return named[0] if all(named) else None


@dataclass
class _Selection:
    """Collects our requirements for theirs."""

    job: PeerJob
    jobs: Jobs
    equal: bool
    ours: list[_Requirement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self, theirs: Sequence[_Requirement]) -> None:
        """Collect our requirements."""
        by_part: dict[Part, list[_Requirement]] = {part: [] for part in Part}
        for each in theirs:
            if part := part_of(each.key, self.job):
                by_part[part].append(each)
        for each in by_part[Part.OTHER]:
            raise Lost(f"{each.key}: no pod here has a label that says this")
        for each in by_part[Part.JOB]:
            values = tuple(self.jobs[value].ours for value in each.values)
            self._add(names.LABEL_JOB_NAME, each.operator, values)
        for each in by_part[Part.POD]:
            self._of_pods(each)
        groups: list[Group] = []
        indices = by_part[Part.INDEX]
        for each in by_part[Part.TYPE]:
            groups += self._of_types(each, with_index=bool(indices))
        for each in indices:
            self._of_indices(each, groups[0] if groups else None)
        for each in by_part[Part.OPERATOR]:
            if each.operator not in ("In", "Exists"):
                raise Lost(f"{each.key}: no pod here has a label that says this")
            if len(by_part[Part.OPERATOR]) == len(theirs):
                self._add(names.LABEL_JOB_NAME, "Exists", ())

    def leave_out_the_master(self) -> None:
        """Require that a pod is a member, as our label of the job is also that of its master."""
        if len(self.job.roles) == 1:
            self._add(names.LABEL_ROLE, "In", tuple(self.job.roles))
        elif self.equal:
            self.notes.append("it also selects the pod of the job's own master")
        else:
            self._add(names.LABEL_ROLE, "NotIn", (names.ROLE_MASTER,))

    def _add(self, key: str, operator: str, values: tuple[str, ...]) -> None:
        if self.equal and (operator != "In" or len(values) != 1):
            raise Lost(f"{key} {operator}: a Service selects by equal values only")
        self.ours.append(_Requirement(key, operator, values))

    def _of_pods(self, theirs: _Requirement) -> None:
        found = [host_names.member(value, self.job) for value in theirs.values]
        if theirs.operator != "In" or len(found) != 1 or found[0] is None:
            raise Lost(f"{theirs.key} {theirs.operator}: several pods have no common label here")
        role, index = found[0]
        self._add(names.LABEL_JOB_NAME, "In", (self.job.ours,))
        self._add(names.LABEL_ROLE, "In", (role,))
        self._add(names.LABEL_INDEX, "In", (str(index),))

    def _of_types(self, theirs: _Requirement, *, with_index: bool) -> Iterator[Group]:
        """Collect the requirements of groups of pods; yield the group if there is only one."""
        operator = theirs.operator
        values = [value.lower() for value in theirs.values]
        groups = [self.job.group(value) for value in values]
        known = [group for group in groups if group is not None]
        if len(known) < len(groups):
            raise Lost(f"{theirs.key}: {self.job.name} has no group {' or '.join(values)}")
        roles = tuple(dict.fromkeys(group.role for group in known))
        of_roles = [group for group in self.job.groups.values() if group.role in roles]
        if operator not in ("In", "NotIn") or all(group in known for group in of_roles):
            self._add(names.LABEL_ROLE, operator, roles)
            yield from known if len(of_roles) == 1 else ()
            return
        if len(known) != 1 or (operator == "NotIn" and self.job.roles != list(roles)):
            raise Lost(f"{theirs.key} {operator}: these groups are parts of roles here")
        [group] = known
        self._add(names.LABEL_ROLE, "In", roles)
        if group.single == (operator == "In"):
            self._add(names.LABEL_INDEX, "In", ("0",))
        elif self.equal and not with_index:
            self.notes.append("it also selects the member in place of the Master")
        elif not with_index:
            self._add(names.LABEL_INDEX, "NotIn", ("0",))
        yield group

    def _of_indices(self, theirs: _Requirement, group: Group | None) -> None:
        if group is None and any(each.first or each.single for each in self.job.groups.values()):
            raise Lost(f"{theirs.key}: Master and Workers are one role here; name one of them")
        if group is not None and group.single:
            return
        first = group.first if group else 0
        if not all(value.isdecimal() and len(value) < 6 for value in theirs.values):
            raise Lost(f"{theirs.key}: is no index")
        values = tuple(str(int(value) + first) for value in theirs.values)
        self._add(names.LABEL_INDEX, theirs.operator, values)
