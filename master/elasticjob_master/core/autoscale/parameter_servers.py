"""More CPU for parameter servers that use all of theirs, or more servers.

A busy server is not always the bottleneck: one that polls uses all of its CPU. So each change is a
trial. If the workers do not get faster, or too little for what it costs, the change is taken back.
The role does not get it again until the job is clearly larger or faster. More servers are tried
where CPU is not available or did not help, if the framework can distribute its variables over them.
A busy server does not bound the number of workers, because their throughput is measured anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elasticjob_master.core.autoscale.decision import MemberUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measurements import begin_search
from elasticjob_master.core.autoscale.scaling_memory import (
    FailedTrial,
    ScalingMemory,
    ServerTrial,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

SERVER_ROLES = ("ps", "server")


def more_for_servers(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return a trial for overloaded servers while the search lasts; None if there is none to make.

    More CPU is tried first, because it needs no new world.
    """
    if memory.search.settled_size is not None:
        return None
    enough = now.objective.enough
    if enough is not None and memory.rates.mean(now.size) >= enough:
        return None
    return _more_cpu(memory, now) or _more_servers(memory, now)


def judge_trial(
    memory: ScalingMemory, now: ScalingInputs
) -> tuple[ScalingMemory, ScalingDecision | None]:
    """Return the memory after the present trial was judged.

    A decision is returned, too, if the trial must be measured longer or is taken back.
    """
    trial = memory.servers.trial
    if trial is None:
        return memory, None
    if not now.window_is_over:
        return memory, ScalingDecision("the servers' new resources are not judged yet", memory)
    after = memory.with_servers(trial=None)
    if trial.size != now.size:  # another actor changed the size, so nothing can be compared
        return after, None
    measured = memory.rates.by_size[now.size]
    change = "more members" if trial.servers_before else "more CPU"
    facts = (
        f"{now.size} members: {trial.rate:.1f} samples/s before {trial.role} got {change}, "
        f"{measured.mean:.1f} since"
    )
    if measured.weight < THRESHOLDS.least_windows:
        return memory, ScalingDecision(f"{facts}; measuring {now.size} again", memory)
    raised = _raised(trial, _uses(now, trial.role))
    least_gain = _least_gain(trial, now, len(raised))
    if measured.mean >= trial.rate * (1 + least_gain):
        # The other sizes were measured with the servers as they were before.
        return begin_search(after, now.size, rates={now.size: measured}), None
    facts += ": it did not help"
    if measured.mean >= trial.rate * (1 + THRESHOLDS.worthwhile):
        facts += f" enough, as {least_gain:.0%} more would be worth so many cores"
    failed = "failed_servers" if trial.servers_before else "failed_cpu"
    all_failed = {
        **getattr(memory.servers, failed),
        trial.role: FailedTrial(now.size, measured.mean),
    }
    after = after.with_servers(rates_stay_valid=True, **{failed: all_failed})
    return after, _taken_back(after, now, trial, raised, facts)


def _taken_back(
    after: ScalingMemory,
    now: ScalingInputs,
    trial: ServerTrial,
    raised: Sequence[MemberUsage],
    facts: str,
) -> ScalingDecision | None:
    """Return the decision to undo a trial; None if another actor has undone it."""
    before = trial.servers_before
    if before:
        if now.server_counts.get(trial.role, 0) <= before:
            return None
        return ScalingDecision(f"{facts}; back to {before}", after, servers={trial.role: before})
    uses = _uses(now, trial.role)
    return _changed_cpu(trial.role, raised, uses, trial.cores_before, facts, after)


def _raised(trial: ServerTrial, uses: Sequence[MemberUsage]) -> list[MemberUsage]:
    """Return the servers that have the CPU of the trial; a replaced one has another name."""
    given = trial.cores_given or 2 * trial.cores_before
    return [
        use
        for use in uses
        if use.name not in trial.others
        and math.isclose(use.cpu_request or 0.0, given, abs_tol=0.01)
    ]


def _least_gain(trial: ServerTrial, now: ScalingInputs, raised: int) -> float:
    """Return the part by which the throughput must have grown for the cores of the trial.

    The objective asks as much of them as of further members. Where the cores of a role are not
    known, only a gain that can be measured is asked for.
    """
    cores = 0.0
    for role in {now.role, *now.servers, *now.server_counts}:
        each = [use.cpu_request or 0.0 for use in _uses(now, role)]
        if not each or min(each) <= 0:
            return THRESHOLDS.worthwhile
        cores += sum(each)
    added = raised * (trial.cores_given - trial.cores_before)
    if trial.servers_before:
        count = now.server_counts.get(trial.role, 0)
        added = (count - trial.servers_before) * trial.cores_before
    objective = now.objective
    part = objective.efficiency if objective.by_efficiency else THRESHOLDS.noticeable
    growth = cores / max(cores - max(0.0, added), cores / 2**10)
    return max(THRESHOLDS.worthwhile, math.pow(growth, part) - 1)


def _failed_before(known: FailedTrial | None, rate: float, size: int) -> bool:
    """Return whether a trial did not help a job of about this size and throughput."""
    more = THRESHOLDS.reserve
    return known is not None and size < more * known.size and rate < more * known.rate


def _more_cpu(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to give the overloaded servers of one role twice the CPU."""
    rate = memory.rates.mean(now.size)
    for role in now.servers:
        uses = _uses(now, role)
        overloaded = [use for use in uses if use.load >= THRESHOLDS.nearly_used_up]
        failed = memory.servers.failed_cpu.get(role)
        if not overloaded or _failed_before(failed, rate, now.size):
            continue
        request = min(use.cpu_request or 0.0 for use in overloaded)
        overloaded = [use for use in overloaded if use.cpu_request == request]
        room = now.free_resources.get("cpu", math.inf) / len(overloaded)
        node = min((use.node_cores for use in overloaded if use.node_cores), default=math.inf)
        cpu = math.floor(10 * min(2 * request, request + room, node)) / 10
        if cpu < request * (1 + THRESHOLDS.worthwhile):
            return None
        worst = max(overloaded, key=lambda use: use.load)
        facts = (
            f"{worst.name} uses {worst.cpu:.1f} of its {worst.cpu_request or 0:g} cores "
            f"({worst.load:.0%}) with {now.size} members of {now.role} ({rate:.1f} samples/s)"
        )
        others = tuple(use.name for use in uses if use not in overloaded)
        trial = ServerTrial(role, now.size, rate, request, cores_given=cpu, others=others)
        return _changed_cpu(role, overloaded, uses, cpu, facts, _with_trial(memory, trial))
    return None


def _more_servers(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to double the servers of a role whose servers are all overloaded."""
    rate = memory.rates.mean(now.size)
    servers = memory.servers
    for role in now.servers:
        uses = _uses(now, role)
        load = min((use.load for use in uses), default=0.0)
        count = now.server_counts.get(role, 0)
        target = min(2 * count, now.most_servers.get(role, 0))
        failed = _failed_before(servers.failed_servers.get(role), rate, now.size)
        if target <= count or load < THRESHOLDS.nearly_used_up or failed:
            continue
        why = "no more CPU is available"
        if _failed_before(servers.failed_cpu.get(role), rate, now.size):
            why = "more CPU did not help"
        facts = (
            f"every {role} uses at least {load:.0%} of its CPU with {now.size} members of "
            f"{now.role} ({rate:.1f} samples/s), and {why}"
        )
        cores = max(uses, key=lambda use: use.load).cpu_request or 0.0
        after = _with_trial(memory, ServerTrial(role, now.size, rate, cores, servers_before=count))
        reason = f"{facts}: {target} of them instead of {count}"
        return ScalingDecision(reason, after, servers={role: target})
    return None


def _with_trial(memory: ScalingMemory, trial: ServerTrial) -> ScalingMemory:
    return memory.with_servers(trial=trial).with_search(plans=memory.search.plans + 1)


def _changed_cpu(
    role: str,
    changed: Sequence[MemberUsage],
    all_servers: Sequence[MemberUsage],
    cpu: float,
    facts: str,
    after: ScalingMemory,
) -> ScalingDecision | None:
    """Return the decision that some of a role's servers get these cores; None if none are left."""
    if not changed:
        return None
    if len(changed) == len(all_servers):
        resources = {role: {"cpu": cpu}}
        return ScalingDecision(f"{facts}: every {role} gets {cpu:g}", after, resources=resources)
    names = ", ".join(use.name for use in changed)
    migrate = {use.name: {"cpu": cpu} for use in changed}
    return ScalingDecision(f"{facts}: {names} get {cpu:g}", after, migrate=migrate)


def _uses(now: ScalingInputs, role: str) -> Sequence[MemberUsage]:
    return now.roles[role].uses if role in now.roles else ()
