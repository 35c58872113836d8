"""In-place resize: resources that fit are enforced, others reported in conditions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from elasticjob_localcluster.node.container_status import ContainerStatus, Running
from elasticjob_localcluster.node.pod_model import Metadata, Pod
from elasticjob_localcluster.node.resize import memory_limit, resize
from hypothesis import given
from hypothesis import strategies as st

NODE = {"cpu": "4", "memory": "1Gi"}


def resized(
    wanted: dict[str, Any], now: dict[str, Any], *, used: int = 0, allocated_to_others: str = "0"
) -> Any:
    pod = Pod(
        metadata=Metadata(name="p"), spec={"containers": [{"name": "c", "resources": wanted}]}
    )
    record = ContainerStatus("c", state=Running("t"), resources=now)
    others = {"cpu": Decimal(allocated_to_others), "memory": Decimal(0)}
    records, conditions = resize(
        pod, [record], allocatable=NODE, allocated_to_others=others, usage=lambda _: used
    )
    return records[0].resources, conditions


def test_resources_that_fit_are_enforced_at_once() -> None:
    wanted = {"requests": {"cpu": "3"}, "limits": {"memory": "1Gi"}}
    assert resized(wanted, {"requests": {"cpu": "1"}}) == (wanted, {})


def test_more_than_the_node_has_is_infeasible() -> None:
    now = {"requests": {"cpu": "1"}}
    resources, conditions = resized({"requests": {"cpu": "4001m"}}, now)
    assert resources == now
    reason, message = conditions["PodResizePending"]
    assert reason == "Infeasible"
    assert "cpu, requested: 4.001, capacity: 4" in message


def test_more_than_is_free_now_is_deferred() -> None:
    now = {"requests": {"cpu": "1"}}
    resources, conditions = resized({"requests": {"cpu": "2"}}, now, allocated_to_others="2.5")
    assert resources == now
    assert conditions["PodResizePending"][0] == "Deferred"


@given(st.integers(1, 1 << 30), st.integers(0, 1 << 30))
def test_a_memory_limit_is_never_lowered_below_the_used_memory(limit: int, used: int) -> None:
    now = {"limits": {"memory": "2Gi"}}
    wanted = {"limits": {"memory": str(limit)}}
    resources, conditions = resized(wanted, now, used=used)
    if used > limit:
        assert resources == now
        assert conditions["PodResizeInProgress"][0] == "Error"
    else:
        assert (resources, conditions) == (wanted, {})


def test_a_limit_is_read_in_bytes() -> None:
    assert memory_limit(ContainerStatus("c", resources={"limits": {"memory": "64Mi"}})) == 64 << 20
    assert memory_limit(ContainerStatus("c")) is None
