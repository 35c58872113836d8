"""Reads from the ElasticJob and its unfinished plans how many members there are to be.

Also which of them leave, and which are successors. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from elasticjob_api.elasticjob import ElasticJob, FailureAction, ReplicaSpec, ReplicaStatus
from elasticjob_api.frameworks.peer import node_port
from elasticjob_api.gpus import VISIBLE_DEVICES
from elasticjob_api.indices import parse_indices, read_indices
from elasticjob_api.pod_identity import MemberKey, member_of_name
from elasticjob_api.pod_requests import role_requests, template_requests_by_plan
from elasticjob_api.prices import price_of
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.roles import kept_roles, notified_roles, uses_host_network
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time

from elasticjob_master.cluster.template_resources import memory_limit, training_container
from elasticjob_master.core.rendezvous.rules import ALL_INDICES, RoleSize
from elasticjob_master.job_facts import HourlyCosts
from elasticjob_master.script_order import ScriptOrder


def sizes(
    job: ElasticJob, known: Mapping[str, RoleSize] = MappingProxyType({})
) -> dict[str, RoleSize]:
    """Return the sizes of the roles that train.

    A role that is removed from the job needs no members. Its members train until they are asked to
    stop, and their processes continue or not as in the sizes `known` before.
    """
    kept = kept_roles(job)
    notified = notified_roles(job)
    present = {
        role: RoleSize(
            min(spec.min_replicas, desired(job, role)),
            desired(job, role),
            kept=role in kept,
            notified=role in notified,
            without_restarts=_without_restarts(job, role),
            actions=_actions(spec),
        )
        for role, spec in job.spec.replica_specs.items()
        if spec.managed
    }
    stored = job.status.replica_statuses
    removed = [
        role for role in stored if stored[role].removed or role not in job.spec.replica_specs
    ]
    return present | {
        role: replace(known.get(role, RoleSize(0, 0)), minimum=0, desired=0) for role in removed
    }


def _without_restarts(job: ElasticJob, role: str) -> Container[int]:
    """Return the indices of members whose next counted failure ends the job."""
    spec = job.spec.replica_specs[role]
    status = job.status.replica_statuses.get(role)
    restarts = {} if status is None else status.restarts_by_index
    failed = sum(count > spec.restart_limit for count in restarts.values())
    in_all = sum(role.restarts for role in job.status.replica_statuses.values())
    if in_all >= job.spec.run_policy.backoff_limit:
        return ALL_INDICES
    if failed + 1 < (spec.completion.min_failed or 1):
        return frozenset()
    if spec.restart_limit == 0:
        return ALL_INDICES
    return frozenset(int(index) for index, count in restarts.items() if count >= spec.restart_limit)


def _actions(spec: ReplicaSpec) -> dict[int, FailureAction]:
    """Return the action for each exit code of the program that a role's restart rules decide.

    A rule about more than the end of the container, such as its message, may not apply.
    """
    actions: dict[int, FailureAction] = {}
    for rule in spec.restart_rules:
        if rule.reasons or rule.pod_conditions or rule.message_pattern is not None:
            continue
        if rule.containers and training_container(spec.template).get("name") not in rule.containers:
            continue
        codes = set(rule.exit_codes or range(1, 256))
        if rule.signals:
            codes &= {128 + signal for signal in rule.signals}
        for code in codes:
            actions.setdefault(code, rule.action)
    return actions


def desired(job: ElasticJob, role: str) -> int:
    """Return the desired number of members of a role: the status', or the spec's before that."""
    status = job.status.replica_statuses.get(role)
    if job.status.phase is None and (
        status is None or (status.desired == 0 and status.highest_index < 0)
    ):
        return job.spec.replica_specs[role].size
    return 0 if status is None or status.removed else status.desired


def own_port(job: ElasticJob) -> int:
    """Return the port at which the members meet if other jobs may use their addresses; else 0."""
    return node_port(job.metadata.uid) if uses_host_network(job) else 0


def domains(job: ElasticJob) -> dict[MemberKey, str]:
    """Return the known topology domains of members, by role and index."""
    if job.spec.topology_key is None:
        return {}
    return {
        (role, index): domain
        for role, status in job.status.replica_statuses.items()
        for domain, indices in status.topology_domains.items()
        for index in parse_indices(indices)
    }


def gpus(job: ElasticJob) -> dict[str, int]:
    """Return the GPUs of a member by role, for roles with GPUs. Plans may have changed them."""
    found = {}
    for role in job.spec.replica_specs:
        has = role_requests(job, role)
        if number := int(sum(has.get(resource, 0) for resource in VISIBLE_DEVICES)):
            found[role] = number
    return found


def hourly_costs(job: ElasticJob, prices: Mapping[str, float]) -> HourlyCosts:
    """Return what a member costs an hour, by role, and by role and index if it differs."""
    found: dict[str | MemberKey, float] = {}
    for role, spec in job.spec.replica_specs.items():
        requests = template_requests_by_plan(spec.template)
        status = job.status.replica_statuses.get(role, ReplicaStatus())
        found[role] = price_of(requests(status.resources), prices)
        for index, own in status.resources_by_index.items():
            found[role, int(index)] = price_of(requests({**status.resources, **own}), prices)
    return found


def memory_for_state(job: ElasticJob) -> int | None:
    """Return the memory limit of a member of a job that could keep its checkpoints in memory.

    None without a limit, and for a job that does so already, has several roles or processes that
    continue.
    """
    roles = [role for role, spec in job.spec.replica_specs.items() if spec.managed]
    if job.spec.agent.state_memory is not None or len(roles) != 1 or notified_roles(job):
        return None
    planned = job.status.replica_statuses.get(roles[0], ReplicaStatus()).resources.get("memory")
    if planned is not None:
        return int(parse_quantity(planned))
    return memory_limit(job.spec.replica_specs[roles[0]].template)


def drain_seconds(job: ElasticJob, role: str) -> float:
    """Return the seconds that a leaving member of a role may take."""
    return float(job.spec.replica_specs.get(role, ReplicaSpec(template={})).drain_seconds)


def draining(job: ElasticJob, unfinished: Iterable[ScalePlan]) -> dict[str, float]:
    """Return the pods that plans drain, with the seconds that each may take."""
    pods: dict[str, float] = {}
    for plan in unfinished:
        for pod in plan.status.draining_pods:
            member = member_of_name(job.metadata.name, pod)
            usual = drain_seconds(job, member.role if member is not None else "")
            given = plan.spec.drain_seconds
            pods[pod] = usual if given is None else float(given)
    return pods


def successors(unfinished: Iterable[ScalePlan]) -> frozenset[MemberKey]:
    """Return role and index of the members that replace others that still train."""
    moves = (move for plan in unfinished for move in plan.status.migrations)
    return frozenset((move.role, move.replacement) for move in moves if move.phase == "Starting")


def script_order(unfinished: Iterable[ScalePlan]) -> ScriptOrder | None:
    """Return the script for which the operator has chosen a pod and waits for the end, if any."""
    for plan in unfinished:
        run = plan.status.script
        status = plan.status
        if (
            run is None
            or run.pod is None
            or run.completion_time is not None
            or not plan.spec.script
        ):
            continue
        changed = {
            (role, index)
            for role in status.before.keys() | status.targets.keys()
            for index in read_indices(status.before.get(role, ""))
            ^ read_indices(status.targets.get(role, ""))
        }
        variables = tuple((variable.name, variable.value) for variable in plan.spec.env)
        until = parse_time(run.start_time) + plan.spec.timeout_seconds
        return ScriptOrder(
            plan.metadata.uid, run.pod, plan.spec.script, variables, frozenset(changed), until
        )
    return None
