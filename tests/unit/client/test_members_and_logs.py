"""Members are chosen by rank, role or name, and their logs are read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus
from elasticjob_api.job_status import MasterStatus
from elasticjob_api.meta import Condition, ObjectMeta
from elasticjob_client.errors import ClientError
from elasticjob_client.execution import exit_code
from elasticjob_client.logs import Position, parse_duration
from elasticjob_client.members import Choice, JobPod, parse_ranks, why_none


def pod(role: str, index: int) -> JobPod:
    labels = {names.LABEL_ROLE: role, names.LABEL_INDEX: str(index)}
    return JobPod(
        metadata=ObjectMeta(name=f"a-{role}-{index}", uid=f"{role}{index}", labels=labels)
    )


def job(**status: Any) -> ElasticJob:
    return ElasticJob(
        metadata=ObjectMeta(name="a", namespace="n"),
        spec=ElasticJobSpec(framework="custom", replica_specs={"worker": None}),  # type: ignore[dict-item]
        status=ElasticJobStatus(**status),
    )


MASTER = JobPod(
    metadata=ObjectMeta(name="a-master", uid="m", labels={names.LABEL_ROLE: names.ROLE_MASTER})
)
PODS = [pod("worker", 10), pod("worker", 2), pod("ps", 0), MASTER]
RANKS = {"ps0": 0, "worker10": 1, "worker2": 2}


@pytest.mark.guarantee("injected-container")
def test_the_container_of_a_pod_is_the_one_that_trains_wherever_it_is() -> None:
    spec = {"containers": [{"name": "proxy"}, {"name": "train"}]}
    named = {"annotations": {names.ANNOTATION_CONTAINER: "train"}}
    foreign = {"annotations": {names.ANNOTATION_CONTAINER: "gone"}}
    found = [
        msgspec.convert({"metadata": metadata, "spec": spec}, JobPod).container
        for metadata in (named, foreign, {})
    ]
    assert found == ["train", "proxy", "proxy"]


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (Choice(), ["a-ps-0"]),
        (Choice(ranks=(2, 1)), ["a-worker-10", "a-worker-2"]),
        (Choice(ranks=(7,)), []),
        (Choice(every=True), ["a-ps-0", "a-worker-10", "a-worker-2"]),
        (Choice(role="worker"), ["a-worker-10", "a-worker-2"]),
        (Choice(role="worker", ranks=(2,)), ["a-worker-2"]),
        (Choice(role="master"), ["a-master"]),
        (Choice(pod="a-master"), ["a-master"]),
    ],
)
def test_members_are_selected_by_their_ranks_in_the_present_world(
    choice: Choice, meant: list[str]
) -> None:
    assert [each.name for each in choice.of(PODS, RANKS)] == meant


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (Choice(), ["a-ps-0"]),
        (Choice(role="worker"), ["a-worker-2", "a-worker-10"]),
        (Choice(ranks=(2,)), ["a-worker-2"]),
    ],
)
def test_without_ranks_the_indices_count(choice: Choice, meant: list[str]) -> None:
    for ranks in ({}, {"of an earlier pod": 0}):
        assert [each.name for each in choice.of(PODS, ranks)] == meant


@pytest.mark.parametrize(
    ("phase", "pods", "choice", "why"),
    [
        (
            "Succeeded",
            [],
            Choice(),
            "has ended, as Succeeded, and its pods are deleted (cleanPodPolicy Running)",
        ),
        ("Suspended", [MASTER], Choice(), "has no pods now, as it is Suspended"),
        (None, [], Choice(every=True), "has no pods now, as it is Pending"),
        ("Running", PODS, Choice(ranks=(7,)), "has no member of rank 7 now; it has 3"),
        ("Running", PODS, Choice(role="chief"), "has no role chief; it has worker"),
        (
            "Running",
            PODS,
            Choice(pod="x"),
            "has no pod x; it has a-worker-10, a-worker-2, a-ps-0, a-master",
        ),
    ],
)
def test_a_selection_without_members_reports_why(
    phase: str | None, pods: list[JobPod], choice: Choice, why: str
) -> None:
    assert f"job n/a {why}" in why_none(job(phase=phase), pods, choice)


@pytest.mark.parametrize(("reason", "refused"), [("Failed", True), ("Stopped", False)])
def test_the_logs_of_a_refused_job_report_why_it_was_refused(reason: str, refused: bool) -> None:
    message = "spec.replicaSpecs.worker.replicas: 9 is more than maxReplicas 4"
    condition = Condition(type="Failed", status="True", reason=reason)
    status: dict[str, Any] = {"phase": "Failed", "message": message, "conditions": [condition]}
    said = why_none(job(**status), [], Choice())
    assert (said == f"job n/a was refused and has had no pods: {message}") == refused
    ran = job(**status, master=MasterStatus(incarnations=1))
    assert "its pods are deleted" in why_none(ran, [], Choice())


def test_ranks_are_numbers_of_a_bounded_count() -> None:
    assert parse_ranks("3,0,3") == (3, 0)
    for text in ("", "a", "1,", "-1", "0;1", ",".join(["1"] * 101)):
        with pytest.raises(ClientError, match="give at most 100 numbers"):
            parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400)]
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1s", "5 m", "1.5h", "1w"])
def test_what_is_no_duration_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(ClientError, match="give seconds"):
        parse_duration(text)


@pytest.mark.guarantee("logs-follow-ranks")
def test_a_log_continues_after_a_break_without_repeated_or_missing_lines() -> None:
    lines = ["10 a", "11 b", "11 c", "11 d", "12 e"]
    for read in range(len(lines) + 1):
        position = Position()
        for line in lines[:read]:
            position.add(line.split()[0])
        rest = [line for line in lines if not position.skips(line.split()[0])]
        assert rest == lines[read:]


def test_how_a_command_has_ended_is_read_from_the_kubelets_status() -> None:
    ended = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}}
    assert exit_code(b'{"status": "Success"}', "pod p") == 0
    assert exit_code(json.dumps(ended).encode(), "pod p") == 7
    with pytest.raises(ClientError, match="pod p: no such file"):
        exit_code(b'{"status": "Failure", "message": "no such file"}', "pod p")
    with pytest.raises(ClientError, match="pod p: garbage"):
        exit_code(b"garbage", "pod p")


def test_without_ranks_the_last_pod_of_a_member_counts_and_not_one_that_has_failed() -> None:
    def made(name: str, time: str) -> JobPod:
        labels = {names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0"}
        return JobPod(
            metadata=ObjectMeta(name=name, uid=name, creation_timestamp=time, labels=labels)
        )

    pods = [
        made("a-worker-0", "2026-01-01T00:00:00Z"),
        made("a-worker-0-1", "2026-01-01T00:00:09Z"),
        pod("worker", 1),
    ]
    assert [each.name for each in Choice().of(pods, {})] == ["a-worker-0-1"]
