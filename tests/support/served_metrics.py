"""The text that a master and an operator serve at /metrics, with a value of every metric."""

from __future__ import annotations

from elasticjob_api.elasticpool import ElasticPool, ElasticPoolStatus
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec
from elasticjob_api.step_report import StepReport
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS
from elasticjob_master.controller import Controller
from elasticjob_master.core.accounting import Moment, Resources
from elasticjob_master.core.rendezvous.members import Identity, Usage
from elasticjob_master.job_facts import JobFacts, ObservedPlan, PlanFacts
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import NoStore
from elasticjob_master.persistence.stored_state import EncodedState
from elasticjob_master.server.metrics import CallCounts, Metrics
from elasticjob_operator.core.sharing.facts import Memory
from elasticjob_operator.http_server import OperatorState
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.store import Store
from elasticjob_shards import Dataset

NAMESPACE = "ns"


def training_master(*, members: int = 1) -> Controller:
    """Return a master whose members have reported steps, use and loss, with a plan and shards."""
    controller = Controller(framework="jax", facts=JobFacts(sizes={}))
    controller.ledgers.declare(Dataset("d", 4, 1))
    plan = ScalePlan(metadata=ObjectMeta(name="p"), spec=ScalePlanSpec(job_name="job"))
    controller.observe_job(JobFacts(sizes={}, plans=PlanFacts((ObservedPlan(plan),))))
    for index in range(members):
        controller.register(Identity(f"job-worker-{index}", f"uid-{index}", "worker", index))
        member = controller.members.get(f"uid-{index}")
        assert member is not None
        member.usage = Usage(1.5, 2**30, 50, 2**20, 8)
        for step in (1, 2, 3):
            metrics = {"loss": 0.5 + index}
            report = StepReport(0, step, 10, 8.0, 0.5, metrics, steps=1, compute_seconds=0.25)
            controller.step(member, report)
    account = controller.accounting
    for now in (0.0, 60.0):
        account.advance(now, now, Moment("training"), Resources)
    return controller


def masters_text(controller: Controller) -> str:
    """Return what this master serves."""
    calls = CallCounts()
    calls.accepted["elasticjob.v1.JobService/GetStatus"] += 1
    writer = StateWriter(NoStore(), lambda: EncodedState(b""))
    return Metrics(controller, writer, calls).render()[0].decode()


def add_job(store: Store, name: str, *, created: str = "", **status: object) -> JobKey:
    """Add a job that trains, with one plan, to an operator's cache."""
    metadata = {"namespace": NAMESPACE, "resourceVersion": "1", "creationTimestamp": created}
    role = {"template": {"spec": {"containers": [{"name": "c", "image": "i", "command": ["c"]}]}}}
    job = {
        "metadata": {**metadata, "name": name, "uid": name},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": role}},
        "status": {
            "replicaStatuses": {"worker": {"desired": 2, "ready": 1}},
            "progress": {"step": 3, "totalSteps": 10, "samplesPerSecond": 2.5},
            **status,
        },
    }
    key = store.update(ELASTIC_JOBS, job)
    assert key is not None
    plan = {"metadata": {**metadata, "name": f"{name}-p", "uid": f"{name}-p"}}
    store.update(SCALE_PLANS, {**plan, "spec": {"jobName": name}})
    return key


def add_pool(store: Store, name: str, *waiting_since: float) -> None:
    """Add a pool to an operator's cache; its jobs wait since these times, and one has its size."""
    waiting = len(waiting_since)
    pool = ElasticPool(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=name),
        status=ElasticPoolStatus(jobs=waiting + 1, waiting=waiting),
    )
    store.pools.update(None, pool)
    memories = store.pools.memories(pool)
    for number, since in enumerate((None, *waiting_since)):
        memories[f"{name}-{number}"] = Memory(waits_since=since)


def series(state: OperatorState) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return labels and values of an operator's series by metric."""
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in state.collect()
    }
