"""The messages that describe the job.

JobService answers with them, the dashboard shows them, and the master stores them for the time
after the job's end.
"""

from __future__ import annotations

import time
from collections import Counter

from elasticjob_api.answers import MOST_MEMBERS, outcome
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_dashboard.data import phase_name

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.advice import standby_summary, state_memory_advice
from elasticjob_master.server import protobuf
from elasticjob_master.server.autoscaling import autoscaling_at

_PHASES = {phase_name(phase): phase for phase in pb.JobPhase.values()}


def status(controller: Controller, config: Config) -> pb.JobStatus:
    """Return phase, world, progress and data sets."""
    rendezvous = controller.rendezvous
    return pb.JobStatus(
        namespace=config.namespace,
        job_name=config.job_name,
        phase=_PHASES[controller.phase],
        round=rendezvous.round,
        world_size=len(rendezvous.world),
        progress=progress(controller),
        datasets=map(protobuf.ledger, controller.ledgers),
        master_starts=controller.master_starts,
    )


def progress(controller: Controller) -> pb.Progress:
    """Return step, rates and problems of the training."""
    source = controller.progress
    now = controller.now()
    eta = source.eta_seconds(now)
    return pb.Progress(
        step=source.step,
        total_steps=source.total_steps,
        samples_per_second=source.samples_per_second(now),
        eta_seconds=-1.0 if eta is None else eta,
        last_report_time=source.reported_at or 0.0,
        metrics=source.metrics,
        steps_per_second=source.steps_per_second(now),
        stalled_since=controller.health_monitor.stalled_since or 0.0,
        stragglers=controller.health_monitor.stragglers,
        why_not_replaced=controller.scaling.replacer.why_not,
        why_stalled=controller.health_monitor.why_stalled,
    )


def members(controller: Controller) -> pb.MemberList:
    """Return all members."""
    return pb.MemberList(members=map(protobuf.member, controller.members))


def world(controller: Controller) -> agent_pb2.World:
    """Return the members that train together, in the order of their ranks."""
    rendezvous = controller.rendezvous
    members = map(protobuf.member, rendezvous.world_members())
    return agent_pb2.World(round=rendezvous.round, members=members)


def plans(controller: Controller) -> pb.PlanList:
    """Return the latest plans."""
    return pb.PlanList(plans=map(protobuf.plan, controller.scaling.latest_plans))


def autoscaling(controller: Controller) -> pb.Autoscaling:
    """Return what the auto-scaler knows and does."""
    return autoscaling_at(controller, controller.now(), wall=time.time())


def report(controller: Controller, config: Config) -> pb.Report:
    """Return the totals of the training up to now."""
    account = controller.accounting
    source = controller.progress
    training = account.seconds("training")
    mean_rate = source.samples / training if training else 0.0
    goodput = account.goodput
    hours = account.hours
    cost = None
    if controller.facts.hourly_costs is not None:
        cost = pb.Cost(amount=hours.cost, currency=config.currency)
    return pb.Report(
        outcome=None if config.standalone else outcome(controller.facts.status),
        began=account.began,
        step=source.step,
        total_steps=source.total_steps,
        samples=source.samples,
        mean_samples_per_second=mean_rate,
        time=pb.TimeSpent(
            **{field.name: account.seconds(field.name) for field in pb.TimeSpent.DESCRIPTOR.fields}
        ),
        goodput=-1.0 if goodput is None else goodput,
        member_hours=hours.members,
        cpu_hours=hours.cpus,
        gpu_hours=hours.gpus,
        cost=cost,
        worlds=account.worlds,
        masters=controller.master_starts,
        metrics=source.metrics,
        advice=state_memory_advice(
            save_seconds=source.save_seconds,
            saved_bytes=source.saved_bytes,
            training_seconds=training,
            limit=controller.facts.memory_for_state,
            used=max((member.usage.memory_bytes for member in controller.members), default=0),
        ),
        standby=standby_summary(controller.members),
    )


def stored_answers(controller: Controller, config: Config) -> pb.StoredAnswers:
    """Return all messages, with a bounded number of members."""
    known = sorted(controller.members, key=lambda member: member.identity.key)
    listed = known[:MOST_MEMBERS]
    ranks = {uid: rank for rank, uid in enumerate(controller.rendezvous.world)}
    return pb.StoredAnswers(
        job_uid=config.job_uid,
        time=time.time(),
        status=status(controller, config),
        members=pb.MemberList(members=map(protobuf.member, listed)),
        ranks={member.uid: ranks[member.uid] for member in listed if member.uid in ranks},
        member_counts=Counter(member.state for member in known),
        history=protobuf.history(controller.history),
        plans=plans(controller),
        autoscaling=autoscaling(controller),
        report=report(controller, config),
    )
