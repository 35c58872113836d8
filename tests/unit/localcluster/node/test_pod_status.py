"""The status of a pod follows from its containers as a kubelet's would."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from elasticjob_localcluster.node.container_status import (
    ContainerStatus,
    CrashLoopBackoff,
    Running,
    Terminated,
    Waiting,
    last_known_status,
)
from elasticjob_localcluster.node.pod_model import Metadata, Pod
from elasticjob_localcluster.node.pod_status import PodFailure, pod_phase, pod_status
from hypothesis import given
from hypothesis import strategies as st

DONE = Terminated(
    0, "Completed", started_at="2026-01-01T00:00:00Z", finished_at="2026-01-01T00:00:01Z"
)
FAILED = msgspec.structs.replace(DONE, exit_code=3, reason="Error", message="why", signal=0)
RUNNING = Running("2026-01-01T00:00:00Z")
POD = Pod(
    metadata=Metadata(name="p", generation=4),
    spec={"restartPolicy": "Never", "containers": [{"name": "c"}]},
)


def of(state: Waiting | Running | Terminated, last: Terminated | None = None) -> ContainerStatus:
    return ContainerStatus("c", state=state, last_terminated=last, ready=isinstance(state, Running))


STATES = st.sampled_from(
    [
        of(Waiting()),
        of(RUNNING),
        of(DONE),
        of(FAILED),
        of(Waiting("CrashLoopBackOff"), FAILED),
        of(RUNNING, FAILED),
    ]
)
POLICIES = st.sampled_from(["Always", "OnFailure", "Never"])


@pytest.mark.parametrize(
    ("policy", "init", "main", "expected"),
    [
        ("Never", [], [of(Waiting())], "Pending"),
        ("Never", [], [of(RUNNING)], "Running"),
        ("Never", [], [of(DONE)], "Succeeded"),
        ("Never", [], [of(FAILED)], "Failed"),
        ("Never", [], [of(FAILED), of(RUNNING)], "Running"),
        ("Never", [], [of(FAILED), of(DONE)], "Failed"),
        ("OnFailure", [], [of(FAILED)], "Running"),
        ("OnFailure", [], [of(DONE)], "Succeeded"),
        ("Always", [], [of(DONE)], "Running"),
        ("Always", [], [of(Waiting("CrashLoopBackOff"), FAILED)], "Running"),
        ("Always", [], [of(RUNNING), of(Waiting())], "Pending"),
        ("Never", [of(RUNNING)], [of(Waiting())], "Pending"),
        ("Never", [of(FAILED)], [of(Waiting())], "Failed"),
        ("Always", [of(FAILED)], [of(Waiting())], "Pending"),
        ("Always", [of(DONE)], [of(RUNNING)], "Running"),
    ],
)
def test_the_phase(
    policy: str, init: list[ContainerStatus], main: list[ContainerStatus], expected: str
) -> None:
    assert pod_phase(policy, init, main) == expected


@given(POLICIES, st.lists(STATES, max_size=3), st.lists(STATES, min_size=1, max_size=4))
def test_a_pod_is_over_only_when_nothing_of_it_runs_or_will_run(
    policy: str, init: list[ContainerStatus], main: list[ContainerStatus]
) -> None:
    if pod_phase(policy, init, main) == "Succeeded":
        assert policy != "Always"
        assert all(record.terminated and record.terminated.exit_code == 0 for record in main)
    if pod_phase("Always", init, main) in ("Succeeded", "Failed"):
        pytest.fail("a pod that always restarts never ends by itself")


def status(
    main: list[ContainerStatus],
    pod: Pod = POD,
    now: float = 0.0,
    **more: object,
) -> dict[str, object]:
    settled = {"address": "127.1.2.3", "mounted": True, "started_at": "s"}
    return pod_status(pod, [], main, now=now, **settled, **more)  # type: ignore[arg-type]


@given(STATES, st.floats(0, 2e9))
def test_the_status_does_not_change_with_time_alone(record: ContainerStatus, later: float) -> None:
    first = status([record])
    pod = Pod(metadata=POD.metadata, spec=POD.spec, status=first)
    assert status([record], pod, later) == first


def test_only_the_condition_that_changed_gets_a_new_time() -> None:
    pod = Pod(
        metadata=POD.metadata, spec=POD.spec, status=status([replace(of(RUNNING), ready=False)])
    )
    after = {item["type"]: item for item in status([of(RUNNING)], pod, 60.0)["conditions"]}  # type: ignore[attr-defined]
    assert after["Ready"]["status"] == "True"
    assert after["Ready"]["lastTransitionTime"] == "1970-01-01T00:01:00Z"
    assert after["Initialized"]["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_a_pod_that_failed_as_a_whole_says_why() -> None:
    answer = status([of(RUNNING)], failure=PodFailure("DeadlineExceeded", "too long"))
    assert (answer["phase"], answer["reason"], answer["message"]) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )


def test_a_readiness_gate_delays_ready_only() -> None:
    gated = Pod(
        metadata=POD.metadata, spec=POD.spec | {"readinessGates": [{"conditionType": "open"}]}
    )
    conditions = {item["type"]: item for item in status([of(RUNNING)], gated)["conditions"]}  # type: ignore[attr-defined]
    assert conditions["ContainersReady"]["status"] == "True"
    assert conditions["Ready"]["status"] == "False"
    assert conditions["Ready"]["reason"] == "ReadinessGatesNotReady"


def test_a_condition_of_a_finished_resize_is_removed() -> None:
    during = status([of(RUNNING)], resize={"PodResizePending": ("Deferred", "full")})
    pod = Pod(metadata=POD.metadata, spec=POD.spec, status=during)
    assert {"$patch": "delete", "type": "PodResizePending"} in status([of(RUNNING)], pod)[
        "conditions"
    ]  # type: ignore[operator]


@given(STATES)
def test_a_new_node_keeps_known_terminations_and_counts_running_containers_as_lost(
    record: ContainerStatus,
) -> None:
    pod = Pod(metadata=POD.metadata, spec=POD.spec, status=status([record]))
    known = last_known_status(pod, {"name": "c"}, now=5.0)
    assert (known.restart_count, known.last_terminated) == (
        record.restart_count,
        record.last_terminated,
    )
    if isinstance(record.state, Running):
        assert known.terminated is not None
        assert (known.terminated.exit_code, known.terminated.reason) == (
            137,
            "ContainerStatusUnknown",
        )
    else:
        assert known.state == record.state


def test_the_back_off_begins_at_once_doubles_to_five_minutes_and_is_forgiven() -> None:
    backoff = CrashLoopBackoff()
    delays = []
    for _ in range(8):
        backoff.record_exit(100.0, ran_for=1.0)
        delays.append(backoff.delay)
        assert backoff.until == 100.0 + backoff.delay
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]
    backoff.record_exit(100.0, ran_for=601.0)
    assert backoff.delay == 0
