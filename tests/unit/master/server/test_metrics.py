"""Checks that docs/metrics.md lists exactly the served metrics, and bounds those of members."""

from __future__ import annotations

import pytest
from elasticjob_master.server import metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.documented_metrics import documented
from tests.support.served_metrics import masters_text, training_master


async def test_the_documentation_lists_every_metric_with_its_type_and_labels() -> None:
    found = {}
    for family in text_string_to_metric_families(masters_text(training_master())):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert family.documentation
        if name.startswith("elasticjob_"):
            assert family.samples, f"{name} is served without a value"
            found[name] = (family.type, tuple(sorted(family.samples[0].labels)))
    assert found == documented("A master's")


async def test_a_job_of_any_size_has_a_bounded_number_of_series_of_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_MEMBERS", 3)
    text = masters_text(training_master(members=5))
    values = {
        sample.labels["index"]: sample.value
        for family in text_string_to_metric_families(text)
        if family.name == "elasticjob_member_loss"
        for sample in family.samples
    }
    assert values == {"0": 0.5, "1": 1.5, "2": 2.5}
    assert "elasticjob_members_without_metrics 2.0" in text
    assert 'elasticjob_member_gpu_utilization_ratio{index="0",role="worker"} 0.5' in text
    assert 'elasticjob_member_step_seconds{index="0",role="worker"} 0.25' in text


async def test_goodput_is_missing_until_a_step_was_reported_and_then_the_part_of_training() -> None:
    controller = training_master()
    assert "elasticjob_goodput_ratio 1.0" in masters_text(controller)
    assert 'elasticjob_activity_seconds{activity="training"} 60.0' in masters_text(controller)
    controller.accounting = type(controller.accounting)()
    assert "\nelasticjob_goodput_ratio" not in masters_text(controller)
