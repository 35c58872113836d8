"""More CPU for parameter servers that use all of theirs, or more servers.

A busy server is not always the bottleneck: one that polls uses all of its CPU. So each change is a
trial. If the workers do not get faster, the change is taken back and the role does not get it
again. More servers are tried where CPU is not available or did not help, if the framework can
distribute its variables over them. A busy server does not bound the number of workers, because
their throughput is measured anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elasticjob_master.core.autoscale.decision import MemberUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measurements import begin_search
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory, ServerTrial
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

SERVER_ROLES = ("ps", "server")


def more_for_servers(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return a trial for overloaded servers while the search climbs; None if there is none to make.

    More CPU is tried first, because it needs no new world.
    """
    if memory.search.settled_size is not None or memory.search.turned:
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
    if trial.size != now.size:  # another actor changed the size, so nothing can be compared
        return memory.with_servers(trial=None), None
    measured = memory.rates.by_size[now.size]
    change = "more members" if trial.servers_before else "more CPU"
    facts = (
        f"{now.size} members: {trial.rate:.1f} samples/s before {trial.role} got {change}, "
        f"{measured.mean:.1f} since"
    )
    if measured.weight < THRESHOLDS.trial_windows:
        return memory, ScalingDecision(f"{facts}; measuring {now.size} again", memory)
    if measured.mean >= trial.rate * (1 + THRESHOLDS.trial_gain):
        memory = memory.with_servers(trial=None)
        # The other sizes were measured with the servers as they were before.
        rates = {now.size: measured}
        return begin_search(memory, now.size, rates=rates, direction=1), None
    return _taken_back(memory, now, trial, f"{facts}: it did not help")


def _taken_back(
    memory: ScalingMemory, now: ScalingInputs, trial: ServerTrial, facts: str
) -> tuple[ScalingMemory, ScalingDecision | None]:
    """Return the memory after a trial that did not help, and the decision to undo it."""
    servers = memory.servers
    if trial.servers_before:
        after = memory.with_servers(
            trial=None,
            rates_stay_valid=True,
            servers_did_not_help=(*servers.servers_did_not_help, trial.role),
        )
        if now.server_counts.get(trial.role, 0) <= trial.servers_before:
            return after, None
        reason = f"{facts}; back to {trial.servers_before}"
        return after, ScalingDecision(reason, after, servers={trial.role: trial.servers_before})
    after = memory.with_servers(
        trial=None,
        rates_stay_valid=True,
        cpu_did_not_help=(*servers.cpu_did_not_help, trial.role),
    )
    uses = _uses(now, trial.role)
    raised = [use for use in uses if (use.cpu_request or 0.0) > trial.cores_before]
    if not raised:
        return after, None
    return after, _changed_cpu(trial.role, raised, uses, trial.cores_before, facts, after)


def _more_cpu(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to give the overloaded servers of one role more CPU."""
    for role in now.servers:
        uses = _uses(now, role)
        overloaded = [use for use in uses if _load(use) >= THRESHOLDS.overloaded]
        if not overloaded or role in memory.servers.cpu_did_not_help:
            continue
        request = max(use.cpu_request or 0.0 for use in overloaded)
        room = now.free_resources.get("cpu", math.inf) / len(overloaded)
        cpu = math.floor(min(request * THRESHOLDS.more_cpu, request + room) * 10) / 10
        if cpu < request * THRESHOLDS.least_more_cpu:
            return None
        worst = max(overloaded, key=_load)
        rate = memory.rates.mean(now.size)
        facts = (
            f"{worst.name} uses {worst.cpu:.1f} of its {worst.cpu_request or 0:g} cores "
            f"({_load(worst):.0%}) with {now.size} members of {now.role} ({rate:.1f} samples/s)"
        )
        after = _with_trial(memory, ServerTrial(role, now.size, rate, request))
        return _changed_cpu(role, overloaded, uses, cpu, facts, after)
    return None


def _more_servers(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to double the servers of a role whose servers are all overloaded."""
    for role in now.servers:
        uses = _uses(now, role)
        least_load = min(map(_load, uses), default=0.0)
        count = now.server_counts.get(role, 0)
        target = min(THRESHOLDS.more_servers * count, now.most_servers.get(role, 0))
        if role in memory.servers.servers_did_not_help or target <= count:
            continue
        if least_load < THRESHOLDS.overloaded:
            continue
        why = "no more CPU is available"
        if role in memory.servers.cpu_did_not_help:
            why = "more CPU did not help"
        rate = memory.rates.mean(now.size)
        facts = (
            f"every {role} uses at least {least_load:.0%} of its CPU with {now.size} members of "
            f"{now.role} ({rate:.1f} samples/s), and {why}"
        )
        cores = max(uses, key=_load).cpu_request or 0.0
        after = _with_trial(memory, ServerTrial(role, now.size, rate, cores, count))
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
) -> ScalingDecision:
    """Return the decision that some of a role's servers get these cores."""
    if len(changed) == len(all_servers):
        resources = {role: {"cpu": cpu}}
        return ScalingDecision(f"{facts}: every {role} gets {cpu:g}", after, resources=resources)
    names = ", ".join(use.name for use in changed)
    migrate = {use.name: {"cpu": cpu} for use in changed}
    return ScalingDecision(f"{facts}: {names} get {cpu:g}", after, migrate=migrate)


def _uses(now: ScalingInputs, role: str) -> Sequence[MemberUsage]:
    return now.roles[role].uses if role in now.roles else ()


def _load(use: MemberUsage) -> float:
    return use.cpu / use.cpu_request if use.cpu_request else 0.0
