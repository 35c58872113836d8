"""Checks that docs/metrics.md lists exactly the served metrics, with their types and labels."""

from __future__ import annotations

import re
from pathlib import Path

from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.job_facts import JobFacts, ObservedPlan, PlanFacts
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import NoStore
from elasticjob_master.persistence.stored_state import EncodedState
from elasticjob_master.server.metrics import CallCounts, Metrics
from elasticjob_shards import Dataset
from prometheus_client.parser import text_string_to_metric_families

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


async def test_the_documentation_lists_every_metric_with_its_type_and_labels() -> None:
    row = re.compile(r"^\| `(elasticjob_\w+)` \| (gauge|counter) \| (.*?) \| .+ \|$", re.MULTILINE)
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in row.findall(DOCUMENT.read_text())
    }
    assert documented == await _served()


async def _served() -> dict[str, tuple[str, tuple[str, ...]]]:
    controller = Controller(framework="jax", facts=JobFacts(sizes={}))
    controller.register(Identity("job-worker-0", "uid-0", "worker", 0))
    controller.ledgers.declare(Dataset("d", 4, 1))
    plan = ScalePlan(metadata=ObjectMeta(name="p"), spec=ScalePlanSpec(job_name="job"))
    controller.observe_job(JobFacts(sizes={}, plans=PlanFacts((ObservedPlan(plan),))))
    calls = CallCounts()
    calls.accepted["elasticjob.v1.JobService/GetStatus"] += 1
    body, _ = Metrics(controller, StateWriter(NoStore(), lambda: EncodedState(b"")), calls).render()
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert family.documentation
        if name.startswith("elasticjob_"):
            assert family.samples, f"{name} is served without a value"
            found[name] = (family.type, tuple(sorted(family.samples[0].labels)))
    return found
