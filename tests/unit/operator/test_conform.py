"""Whatever somebody has written into a status, what is left of it can be read as its type."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.limits import MAX_COUNTER, MAX_INDICES
from elasticjob_api.scaleplan import ScalePlanStatus
from elasticjob_api.scalers import ScalerStatus
from elasticjob_operator.core.model.conform import conform
from hypothesis import given
from hypothesis import strategies as st

Json = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"
REPLICA = {
    "desired": 3,
    "indices": "0-2",
    "active": 2,
    "ready": 0,
    "succeeded": 1,
    "succeededIndices": "1",
    "failed": 0,
    "restarts": 1,
    "restartsByIndex": {"0": 1},
    "uncountedRestarts": 4,
    "uncountedByIndex": {"2": 4},
    "backOff": {"0": {"failures": 2, "until": TIME}},
    "startedIndices": "0,2",
    "highestIndex": 2,
    "incarnations": 5,
    "incarnationByIndex": {"0": 1},
    "resources": {"cpu": "2"},
    "resourcesByIndex": {"0": {"memory": "4Gi", "nvidia.com/gpu": 1}},
}
HONEST: dict[type[Any], Json] = {
    ElasticJobStatus: {
        "phase": "Running",
        "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": TIME}],
        "replicaStatuses": {"worker": REPLICA},
        "currentPlan": "job-auto-1",
        "master": {"incarnations": 2, "restarts": 1, "backOff": {"failures": 1, "until": TIME}},
        "progress": {"step": 5, "metrics": {"loss": 0.5}, "stragglers": ["job-worker-0"]},
        "restarts": 1,
        "uncountedRestarts": 0,
        "startTime": TIME,
        "message": "fine",
    },
    ScalePlanStatus: {
        "phase": "Executing",
        "targets": {"worker": "0-3"},
        "before": {"worker": "0-2"},
        "specReplicas": {"worker": 3},
        "resourcesByIndex": {"worker": {"3": {"cpu": "1"}}},
        "migrations": [
            {"role": "worker", "index": 0, "replacement": 3, "phase": "Starting", "since": TIME}
        ],
        "drainingPods": ["job-worker-2"],
        "startTime": TIME,
    },
    ScalerStatus: {
        "phase": "Scaling",
        "plan": "job-out-1",
        "pods": ["job-worker-1"],
        "completionTime": TIME,
    },
}
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a" * 300, TIME]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in the JSON."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, entry in inner for place in places(entry, (*path, key)))]


def with_value(value: Json, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    changed = copy.deepcopy(value)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    return changed


@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_status_is_left_as_it_is(kind: type[Any]) -> None:
    assert conform(HONEST[kind], kind, "status") == (HONEST[kind], [])
    assert msgspec.to_builtins(msgspec.convert(HONEST[kind], kind)) == HONEST[kind]


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize("kind", HONEST)
@given(data=st.data())
def test_whatever_is_written_into_one_field_the_status_can_be_read_and_the_other_fields_stay(
    kind: type[Any], data: st.DataObject
) -> None:
    place = data.draw(st.sampled_from(places(HONEST[kind])))
    written = with_value(HONEST[kind], place, data.draw(ODD))
    found, notes = conform(written, kind, "status")
    msgspec.convert(found, kind)
    assert notes or found == written or not isinstance(written, dict)
    for field, value in HONEST[kind].items():
        if place and field != place[0]:
            assert found[field] == value


@pytest.mark.parametrize(
    ("field", "odd", "kept", "note"),
    [
        ("indices", "5000000-8000000", None, "status.replicaStatuses.worker.indices is not what"),
        ("indices", "0," * 200_000, None, "status.replicaStatuses.worker.indices is not what"),
        (
            "desired",
            500_000,
            MAX_INDICES,
            "status.replicaStatuses.worker.desired: 500000 is beyond 20000",
        ),
        ("restarts", -3, 0, "status.replicaStatuses.worker.restarts: -3 is beyond 0"),
        ("incarnations", 10**15, MAX_COUNTER, "incarnations"),
        ("restartsByIndex", {"0": 1, "abc": 1, "-1": 2, "01": 3}, {"0": 1}, "restartsByIndex.abc"),
        ("backOff", {"0": {"until": "tomorrow"}}, {"0": {}}, "backOff.0.until"),
        ("resources", {"rdma/hca": 1, "smoke": 3}, {"rdma/hca": 1}, "resources.smoke"),
        (
            "resourcesByIndex",
            {str(n): {} for n in range(30_000)},
            MAX_INDICES,
            "resourcesByIndex: 30000 entries",
        ),
    ],
)
def test_what_is_beyond_its_bounds_is_clamped_or_left_out_and_named(
    field: str, odd: Any, kept: Any, note: str
) -> None:
    written = {**HONEST[ElasticJobStatus], "replicaStatuses": {"worker": {**REPLICA, field: odd}}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(written, ElasticJobStatus)
    found, notes = conform(written, ElasticJobStatus, "status")
    value = found["replicaStatuses"]["worker"].get(field)
    assert (len(value) if isinstance(kept, int) and isinstance(value, dict) else value) == kept
    assert any(note in each for each in notes), notes


def test_a_long_message_is_shortened_and_many_notes_are_not_all_written() -> None:
    found, notes = conform(
        {"message": "x" * 40_000, "conditions": [1] * 60}, ElasticJobStatus, "status"
    )
    assert len(found["message"]) == 32_768
    assert found["conditions"] == []
    assert len(notes) == 10


@pytest.mark.parametrize(
    ("odd", "note"),
    [
        (
            {"migrations": [{**HONEST[ScalePlanStatus]["migrations"][0], "role": ""}]},
            "status.migrations[0].role is not",
        ),
        ({"targets": {"": "0-3"}}, "status.targets. is not"),
    ],
)
def test_a_role_without_a_name_is_left_out_and_named(odd: Json, note: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(odd, ScalePlanStatus)
    found, notes = conform(odd, ScalePlanStatus, "status")
    assert msgspec.convert(found, ScalePlanStatus) == ScalePlanStatus()
    assert any(note in each for each in notes), notes
