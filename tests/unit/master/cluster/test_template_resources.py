"""The resources that the auto-scaler reads from a pod template."""

from __future__ import annotations

from decimal import Decimal

from elasticjob_master.cluster.template_resources import pod_requests


def test_requests_add_up_over_containers_and_fall_back_to_limits() -> None:
    one = {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
    two = {"resources": {"limits": {"cpu": 1}}}
    found = pod_requests({"spec": {"containers": [one, two, {}, "garbage"]}})
    assert found == {"cpu": Decimal("1.25"), "memory": Decimal(2**30)}
    assert pod_requests({"spec": []}) == {}
