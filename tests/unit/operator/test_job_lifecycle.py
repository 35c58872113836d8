"""The life of a job against a cluster in memory: how it comes to its end, stops, goes on, and repairs itself."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import BackOff
from elasticjob_api.times import format_time, parse_time
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.members import backoff
from elasticjob_operator.store import JobKey
from elasticjob_operator.work_queue import Retry

from tests.support.simulator.cluster import DEFAULTS, JOB, NAMESPACE, Cluster

Json = dict[str, Any]
NOON = 1_767_268_800.0


def life(**job: Any) -> Cluster:
    """A cluster that has one clock."""
    cluster = Cluster(**job)
    cluster.kube.now = lambda: cluster.now
    return cluster


def pod_names(cluster: Cluster, role: str = "worker") -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.kube.pods(role)]


def status_of(cluster: Cluster) -> Json:
    found: Json = cluster.kube.objects[ELASTIC_JOBS, JOB]["status"]
    return found


def condition(cluster: Cluster, kind: str) -> tuple[str, str]:
    (found,) = [c for c in status_of(cluster)["conditions"] if c["type"] == kind]
    return found["status"], found["reason"]


def set_suspend(cluster: Cluster, value: bool) -> None:
    cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec.setdefault("runPolicy", {}).update(suspend=value))


def end(cluster: Cluster, name: str, code: int, reason: str = "Error", *, ran: float = 1.0, ago: float = 0.0) -> None:
    """Let the training in a pod end so many seconds ago, after it ran for so long."""
    at = cluster.now - ago
    times = {"startedAt": format_time(at - ran), "finishedAt": format_time(at)}
    terminated = {"exitCode": code, "reason": reason if code else "Completed", "message": "last words", **times}
    container = {"name": "train", "state": {"terminated": terminated}}
    phase = "Failed" if code else "Succeeded"
    cluster.kube.set_status(PODS, name, phase=phase, conditions=[], containerStatuses=[container])


async def tick(cluster: Cluster, turns: int = 3) -> None:
    """Let the operator work at one moment, and pods start and go, without waiting for anything."""
    for _ in range(turns):
        cluster.now -= 2  # what a turn takes
        await cluster.run_operator()
        cluster.run_pods()


# --- back-off and counts --------------------------------------------------------------------------------------------


async def test_a_member_that_goes_on_failing_is_restarted_after_ever_longer_waits() -> None:
    cluster = life(replicas=1, worker={"restartLimit": 10})
    await cluster.start()
    for number, wait in enumerate((0, 10, 20, 40)):
        (name,) = pod_names(cluster)
        end(cluster, name, 1)
        if wait:
            cluster.now += wait - 2
            await tick(cluster)
            assert pod_names(cluster) == [name], "the failed pod stays until then, for its logs"
            assert status_of(cluster)["message"].startswith("restarts: worker 0 at ")
            cluster.now += 2
        await tick(cluster)
        assert pod_names(cluster) == [f"job-worker-0-{number + 1}"], f"after {wait} s"
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert worker["restarts"] == worker["restartsByIndex"]["0"] == worker["backOff"]["0"]["failures"] == 4
    assert status_of(cluster)["restarts"] == 4
    assert "message" not in status_of(cluster)
    assert status_of(cluster).get("uncountedRestarts", 0) == 0


@pytest.mark.parametrize("role", [names.ROLE_WORKER, names.ROLE_MASTER])
async def test_the_operator_looks_again_when_a_wait_is_over_although_nothing_changes(role: str) -> None:
    cluster = life(replicas=1)
    await cluster.start()
    for _ in range(2):
        end(cluster, pod_names(cluster, role)[0], 1)
        await tick(cluster)
    await cluster.operator.watch()
    assert await cluster.operator.work(cluster.now) == pytest.approx(10, abs=1.1)


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
async def test_a_node_with_a_wrong_clock_changes_no_wait(behind: float) -> None:
    cluster = life(replicas=1, worker={"restartLimit": 10})
    await cluster.start()
    for wait in (0, 10, 20):
        (name,) = pod_names(cluster)
        end(cluster, name, 1, ago=behind)
        failed, since = pod_names(cluster), cluster.now
        await tick(cluster)
        assert (pod_names(cluster) == failed) == (wait > 0)
        cluster.now = since + wait + 2
        await tick(cluster)
        assert pod_names(cluster) != failed


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_clock_that_is_set_back_makes_no_wait_longer(ahead: float) -> None:
    wait = BackOff(failures=9, until=format_time(NOON + ahead + backoff.MAX_DELAY_SECONDS))
    assert backoff.seconds_left(wait, NOON) <= backoff.MAX_DELAY_SECONDS


async def test_counts_are_told_though_the_clock_was_set_back() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    cluster.now -= 3600
    cluster.kube.set_status(PODS, "job-worker-1", conditions=[])
    await tick(cluster)
    assert status_of(cluster)["workers"] == "1/2"


async def test_a_failure_after_a_long_run_is_restarted_at_once() -> None:
    cluster = life(replicas=1)
    await cluster.start()
    for ran in (1.0, 601.0):
        (before,) = pod_names(cluster)
        end(cluster, before, 1, ran=ran)
        await tick(cluster)
        assert pod_names(cluster) != [before]
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert (worker["restarts"], worker["backOff"]["0"]["failures"]) == (2, 1)


@pytest.mark.parametrize("ending", ["vanished", "drained", "evicted", "deleted"])
async def test_what_is_nobodys_fault_is_replaced_at_once_uncounted_and_later_if_it_repeats(ending: str) -> None:
    cluster = life(replicas=2, worker={"restartLimit": 0}, runPolicy={"backoffLimit": 0})
    await cluster.start()
    await tick(cluster)

    def interrupt(name: str) -> None:
        if ending == "vanished":
            cluster.kube.remove(PODS, name)
        elif ending == "drained":
            end(cluster, name, names.EXIT_DRAINED)
        elif ending == "evicted":
            cluster.kube.set_status(PODS, name, phase="Failed", reason="Evicted", conditions=[])
        else:
            cluster.kube.mark_deleted(PODS, name)

    interrupt("job-worker-1")
    await tick(cluster, 4)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1"]
    interrupt("job-worker-1-1")
    await tick(cluster, 4)
    assert "job-worker-1-2" not in pod_names(cluster)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-2"]
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert worker["uncountedByIndex"] == {"1": 2}
    assert (worker["uncountedRestarts"], worker.get("restarts", 0)) == (2, 0)
    assert cluster.job().status.phase == "Running"


@pytest.mark.parametrize("write", range(1, 14))
@pytest.mark.parametrize("fault", ["crash_in", "lose_answer_in"])
async def test_every_end_is_counted_once_whenever_the_operator_dies(fault: str, write: int) -> None:
    cluster = life(replicas=3, worker={"restartLimit": 10})
    await cluster.start()
    await cluster.settle()
    setattr(cluster.kube, fault, write)
    end(cluster, "job-worker-0", 1)
    end(cluster, "job-worker-1", names.EXIT_DRAINED)
    cluster.kube.remove(PODS, "job-worker-2")
    await cluster.settle()
    setattr(cluster.kube, fault, None)
    for name in pod_names(cluster)[:1]:
        end(cluster, name, 1)
    await cluster.settle()
    worker = cluster.job().status.replica_statuses["worker"]
    assert worker.restarts_by_index == {"0": 2}
    assert worker.uncounted_by_index == {"1": 1, "2": 1}
    assert (worker.restarts, worker.uncounted_restarts) == (2, 2)
    cluster.check_final_state()


async def test_the_job_fails_when_all_members_together_have_failed_too_often() -> None:
    cluster = life(replicas=3, runPolicy={"backoffLimit": 1})
    await cluster.start()
    end(cluster, "job-worker-0", 1)
    end(cluster, "job-worker-1", 3)
    await cluster.settle()
    told = status_of(cluster)
    assert told["phase"] == "Failed"
    assert told["message"].startswith("2 counted restarts are above runPolicy.backoffLimit 1: ")
    assert "exit code 3: last words" in told["message"]


async def test_memory_grows_until_its_limit_and_then_it_is_a_plain_failure() -> None:
    cluster = life(replicas=1, worker={"maxMemory": "3Gi"})
    await cluster.start()
    for memory in ("2048Mi", "3072Mi", "3072Mi"):
        end(cluster, pod_names(cluster)[0], 137, "OOMKilled")
        await cluster.settle()
        assert cluster.kube.pods()[0]["spec"]["containers"][0]["resources"]["requests"]["memory"] == memory
    end(cluster, pod_names(cluster)[0], 137, "OOMKilled")
    await cluster.settle()
    assert "restartLimit 3 is used up: exit code 137, OOMKilled" in status_of(cluster)["message"]


async def test_a_permanent_error_fails_the_job_at_once_with_the_last_words() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    end(cluster, "job-worker-0", 127)
    await cluster.settle()
    assert status_of(cluster)["message"] == "worker 0 failed: exit code 127: last words"
    assert pod_names(cluster) == ["job-worker-0"], "its logs stay readable"


async def test_a_pattern_that_is_no_regular_expression_fails_the_job_when_it_is_taken_up() -> None:
    cluster = life(worker={"restartRules": [{"action": "Ignore", "messagePattern": "("}]})
    await cluster.start()
    assert cluster.job().status.phase == "Failed"
    assert cluster.job().status.message.startswith(
        "spec.replicaSpecs.worker.restartRules[0].messagePattern: '(' is not"
    )
    assert cluster.kube.all(PODS) == []


# --- the start and the deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "phases"),
    [("AnyMin", ["Starting", "Running", "Running"]), ("AllReady", ["Starting", "Starting", "Running"])],
)
async def test_a_job_runs_when_enough_members_are_ready(policy: str, phases: list[str]) -> None:
    cluster = life(replicas=2, least=1, runPolicy={"startPolicy": policy})
    await cluster.kube.create(ELASTIC_JOBS, NAMESPACE, cluster._body)
    await cluster.run_operator()
    await cluster.run_operator()
    found = []
    for name in ("job-master", "job-worker-1", "job-worker-0"):
        cluster.kube.set_status(PODS, name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])
        await cluster.run_operator()
        found.append(status_of(cluster)["phase"])
    assert found == phases


async def test_a_job_fails_when_its_time_is_over_and_its_pods_are_cleaned_up() -> None:
    cluster = life(replicas=2, runPolicy={"activeDeadlineSeconds": 300})
    await cluster.start()
    await cluster.operator.watch()
    wait = await cluster.operator.work(cluster.now)
    assert wait is not None
    assert parse_time(status_of(cluster)["startTime"]) + 300 == pytest.approx(cluster.now + wait)
    cluster.now += wait
    await cluster.settle()
    assert status_of(cluster)["message"] == "spec.runPolicy.activeDeadlineSeconds: active for more than 300 s"
    assert cluster.kube.all(PODS) == []


async def test_a_job_without_room_for_its_members_fails_with_the_words_of_the_scheduler() -> None:
    cluster = life(replicas=2, runPolicy={"pendingDeadlineSeconds": 60})
    await cluster.kube.create(ELASTIC_JOBS, NAMESPACE, cluster._body)
    await cluster.run_operator()
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    for pod in cluster.kube.pods():
        cluster.kube.set_status(PODS, pod["metadata"]["name"], conditions=[unschedulable])
    cluster.kube.set_status(PODS, "job-master", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    for _ in range(40):
        await cluster.run_operator()
    assert status_of(cluster)["phase"] == "Failed"
    assert status_of(cluster)["message"].endswith("is Pending for more than 60 s: Unschedulable: 0/3 nodes fit")


# --- completion -----------------------------------------------------------------------------------------------------


async def test_a_member_has_succeeded_when_its_training_has_whatever_its_sidecars_do() -> None:
    cluster = life(replicas=1)
    await cluster.start()
    done = {"name": "train", "state": {"terminated": {"exitCode": 0}}}
    cluster.kube.set_status(PODS, "job-worker-0", conditions=[], containerStatuses=[done, {"name": "logs"}])
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_a_member_whose_training_has_failed_is_replaced_although_a_sidecar_runs_on() -> None:
    cluster = life(replicas=1)
    await cluster.start()
    failed = {"name": "train", "state": {"terminated": {"exitCode": 1}}}
    cluster.kube.set_status(PODS, "job-worker-0", conditions=[], containerStatuses=[failed, {"name": "logs"}])
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0-1"]


async def test_a_member_that_has_succeeded_is_never_started_again() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    end(cluster, "job-worker-0", 0)
    await cluster.settle()
    cluster.kube.remove(PODS, "job-worker-0")
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-1"]
    assert status_of(cluster).get("uncountedRestarts", 0) == 0
    end(cluster, "job-worker-1", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_enough_successes_end_the_job() -> None:
    cluster = life(replicas=3, worker={"completion": {"minSucceeded": 2}})
    await cluster.start()
    end(cluster, "job-worker-0", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Running"
    end(cluster, "job-worker-2", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"
    assert pod_names(cluster) == ["job-worker-0", "job-worker-2"], "cleanPodPolicy Running"


async def test_a_role_can_do_without_some_members_and_the_job_succeeds_with_the_others() -> None:
    cluster = life(replicas=3, worker={"restartLimit": 0, "completion": {"minFailed": 2}})
    await cluster.start()
    end(cluster, "job-worker-1", 1)
    await cluster.settle()
    assert cluster.job().status.phase == "Running"
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1", "job-worker-2"], "what is lost is kept for its logs"
    end(cluster, "job-worker-0", 0)
    end(cluster, "job-worker-2", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_the_job_fails_when_nobody_is_left_who_could_succeed() -> None:
    cluster = life(replicas=2, worker={"restartLimit": 0, "completion": {"minFailed": 5}})
    await cluster.start()
    end(cluster, "job-worker-0", 1)
    end(cluster, "job-worker-1", 1)
    await cluster.settle()
    assert cluster.job().status.phase == "Failed"
    assert cluster.job().status.message == "no worker is left: 0 have succeeded, 2 have failed for good"


async def test_a_job_without_members_waits_for_some() -> None:
    cluster = life(replicas=0, least=0)
    await cluster.start()
    assert (cluster.job().status.phase, cluster.job().status.workers) == ("Running", "0/0")
    await cluster.apply(SCALE_OUTS, "more", count=2)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    for name in pod_names(cluster):
        end(cluster, name, 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


@pytest.mark.parametrize("write", range(1, 12))
async def test_members_that_succeed_while_others_are_drained_neither_end_the_job_early_nor_run_again(
    write: int,
) -> None:
    cluster = life(replicas=3)
    await cluster.start()
    await cluster.apply(SCALE_INS, "less", podNames=["job-worker-2"])
    cluster.kube.crash_in = write
    await cluster.run_operator()
    end(cluster, "job-worker-0", 0)
    await cluster.run_operator()
    end(cluster, "job-worker-2", 0)  # it ends well while it is being removed
    await cluster.settle()
    cluster.kube.crash_in = None
    assert cluster.job().status.phase == "Running"
    assert "job-worker-0" in pod_names(cluster)
    assert len(cluster.kube.created_names) == 4, "three workers and the master, each once"
    end(cluster, "job-worker-1", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"
    assert len(cluster.kube.created_names) == 4


# --- the end --------------------------------------------------------------------------------------------------------


async def finish(cluster: Cluster) -> None:
    await cluster.start()
    end(cluster, "job-worker-0", 0)
    cluster.kube.set_status(PODS, "job-worker-1", phase="Running")
    await cluster.settle()


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("Running", ["job-worker-0"]),
        ("All", []),
        ("None", ["job-worker-0", "job-worker-1"]),
    ],
)
async def test_at_the_end_pods_are_deleted_as_the_policy_says_and_the_master_always(
    policy: str, kept: list[str]
) -> None:
    cluster = life(replicas=2, worker={"completion": {"minSucceeded": 1}}, runPolicy={"cleanPodPolicy": policy})
    await finish(cluster)
    assert cluster.job().status.phase == "Succeeded"
    assert pod_names(cluster) == kept
    assert pod_names(cluster, names.ROLE_MASTER) == []


async def test_a_job_that_has_ended_never_starts_anything_again() -> None:
    cluster = life(replicas=2, worker={"completion": {"minSucceeded": 1}}, runPolicy={"cleanPodPolicy": "None"})
    await finish(cluster)
    created = set(cluster.kube.created_names)
    end(cluster, "job-worker-1", 1)
    await cluster.settle()
    cluster.kube.remove(PODS, "job-worker-1")
    set_suspend(cluster, True)
    await cluster.settle()
    set_suspend(cluster, False)
    cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["replicaSpecs"]["worker"].update(replicas=5))
    await cluster.settle()
    assert cluster.kube.created_names == created
    assert cluster.job().status.phase == "Succeeded"
    assert cluster.kube.all(SCALE_PLANS) == []


async def test_a_finished_job_is_deleted_when_its_time_is_over() -> None:
    cluster = life(replicas=1, runPolicy={"ttlSecondsAfterFinished": 100})
    await cluster.start()
    end(cluster, "job-worker-0", 0)
    await cluster.settle()
    completed = status_of(cluster)["completionTime"]
    await cluster.operator.watch()
    wait = await cluster.operator.work(cluster.now)
    assert wait is not None
    assert cluster.now + wait == pytest.approx(parse_time(completed) + 100)
    cluster.now += wait
    await cluster.run_operator()
    assert (ELASTIC_JOBS, JOB) not in cluster.kube.objects


async def test_conditions_of_others_stay_and_ours_tell_the_generation() -> None:
    cluster = life(replicas=1)
    await cluster.start()
    foreign = {"type": "Audited", "status": "True", "lastTransitionTime": format_time(0), "reason": "R", "message": "m"}
    told = status_of(cluster)
    cluster.kube.set_status(ELASTIC_JOBS, JOB, conditions=[*told["conditions"], foreign])
    set_suspend(cluster, True)
    await cluster.settle()
    set_suspend(cluster, False)
    await cluster.settle()
    end(cluster, pod_names(cluster)[0], 0)
    await cluster.settle()
    assert foreign in status_of(cluster)["conditions"]
    generation = cluster.kube.objects[ELASTIC_JOBS, JOB]["metadata"]["generation"]
    assert status_of(cluster)["observedGeneration"] == generation == 3
    assert {c["type"]: c["status"] for c in status_of(cluster)["conditions"]} == {
        "Audited": "True",
        "MasterReady": "False",
        "Running": "False",
        "Suspended": "False",
        "Succeeded": "True",
    }
    assert all(c["observedGeneration"] == 3 for c in status_of(cluster)["conditions"] if c["type"] != "Audited")


async def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    cluster = life(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})
    await cluster.start()
    assert cluster.kube.writes == 1, "the user's own"
    ours = life(runPolicy={"managedBy": "elasticjob.dev/operator"})
    await ours.start()
    assert ours.job().status.phase == "Running"


# --- suspend and resume ---------------------------------------------------------------------------------------------


async def test_a_suspended_job_drains_its_members_before_its_master_and_tells_how_far_it_is() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    started = status_of(cluster)["startTime"]
    set_suspend(cluster, True)
    await cluster.run_operator()
    gone = [pod["metadata"]["name"] for pod in cluster.kube.all(PODS) if "deletionTimestamp" in pod["metadata"]]
    assert gone == ["job-worker-0", "job-worker-1"], "the master last"
    assert status_of(cluster)["phase"] == "Running"
    assert status_of(cluster)["message"] == "suspending: 3 pods are draining"
    assert condition(cluster, "Suspended") == ("False", "Suspending")
    await cluster.settle()
    assert cluster.kube.all(PODS) == []
    assert status_of(cluster)["phase"] == "Suspended"
    assert condition(cluster, "Suspended") == ("True", "Suspended")
    assert condition(cluster, "Running")[0] == "False"
    assert "startTime" not in status_of(cluster)
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert condition(cluster, "Suspended") == ("False", "Resumed")
    assert parse_time(status_of(cluster)["startTime"]) > parse_time(started), "its time to be active begins anew"
    assert status_of(cluster).get("restarts", 0) == status_of(cluster).get("uncountedRestarts", 0) == 0
    cluster.check_final_state()


async def test_a_job_that_is_created_suspended_has_no_pods_until_it_is_resumed() -> None:
    cluster = life(runPolicy={"suspend": True})
    await cluster.start()
    assert cluster.kube.created_names == set()
    assert status_of(cluster)["phase"] == "Suspended"
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"


REQUESTS: list[tuple[Any, Json, int]] = [  # and the size of a job of three when they are done
    (SCALE_OUTS, {"count": 2}, 5),
    (SCALE_INS, {"count": 2}, 1),
    (SCALE_INS, {"podNames": ["job-worker-0"]}, 2),
    (SCALE_PLANS, {"replicaResourceSpecs": {"worker": {"replicas": 5, "resource": {"cpu": "2"}}}}, 5),
    (SCALE_PLANS, {"createPods": [{}], "removePods": [{"name": "job-worker-1"}]}, 3),
    (SCALE_PLANS, {"migratePods": [{"name": "job-worker-1", "resource": {"cpu": "2"}}]}, 3),
]


async def suspended_at(resource: Any, spec: Json, write: int, crash: int | None = None) -> Cluster:
    """Suspend a job of three when its change has come to the n-th write; the operator that was at it has died."""
    cluster = life(replicas=3)
    await cluster.start()
    await cluster.apply(resource, "change", **spec)
    cluster.kube.crash_in = write
    for _ in range(20):
        if not await cluster.run_operator():
            break
        cluster.run_pods()
    cluster.kube.crash_in = crash
    set_suspend(cluster, True)
    await cluster.settle()
    cluster.kube.crash_in = None
    return cluster


@pytest.mark.parametrize("write", range(1, 16))
@pytest.mark.parametrize(
    ("resource", "spec", "size"), REQUESTS, ids=[f"{r.kind}-{next(iter(s))}" for r, s, _ in REQUESTS]
)
async def test_a_job_suspended_in_the_middle_of_a_change_comes_back_with_one_size(
    resource: Any, spec: Json, size: int, write: int
) -> None:
    cluster = await suspended_at(resource, spec, write)
    assert cluster.kube.all(PODS) == []
    assert status_of(cluster)["phase"] == "Suspended"
    ends = {plan["metadata"]["name"]: plan["status"]["phase"] for plan in cluster.kube.all(SCALE_PLANS)}
    assert set(ends.values()) <= {"Cancelled", "Failed", "Succeeded"}
    held = cluster.job().status.replica_statuses["worker"]
    assert held.desired in ((3, size) if write > 6 else (3,)), "the size of before, or what the last step has stored"
    assert held.desired == cluster.job().spec.replica_specs["worker"].replicas
    set_suspend(cluster, False)
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == held.desired
    assert cluster.job().spec.replica_specs["worker"].replicas == held.desired


@pytest.mark.parametrize("crash", range(1, 12))
@pytest.mark.parametrize("write", [3, 6])
@pytest.mark.parametrize(("resource", "spec"), [r[:2] for r in REQUESTS[:2]], ids=["ScaleOut", "ScaleIn"])
async def test_an_operator_that_dies_while_it_suspends_is_carried_on_by_the_next(
    resource: Any, spec: Json, write: int, crash: int
) -> None:
    cluster = await suspended_at(resource, spec, write, crash)
    assert cluster.kube.all(PODS) == []
    assert cluster.job().status.replica_statuses["worker"].desired == 3
    set_suspend(cluster, False)
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == 3


async def test_a_request_for_a_suspended_job_is_refused_with_its_field() -> None:
    cluster = life(runPolicy={"suspend": True})
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.apply(SCALE_PLANS, "plan", replicaResourceSpecs={"worker": {"replicas": 3}})
    await cluster.settle()
    for resource, name, phase in ((SCALE_OUTS, "more", "ScaleFailed"), (SCALE_PLANS, "plan", "Failed")):
        told = cluster.kube.objects[resource, name]["status"]
        assert (told["phase"], told["message"]) == (phase, "spec.jobName: ElasticJob 'job' is suspended")


async def test_an_edit_of_replicas_while_suspended_is_carried_out_when_the_job_comes_back() -> None:
    cluster = life(replicas=2, runPolicy={"suspend": True})
    await cluster.start()
    cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["replicaSpecs"]["worker"].update(replicas=4))
    await cluster.settle()
    assert cluster.kube.all(SCALE_PLANS) == []
    set_suspend(cluster, False)
    await cluster.settle()
    assert len(pod_names(cluster)) == 4
    cluster.check_final_state()


async def test_a_member_that_succeeds_while_the_job_is_suspended_has_succeeded() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    set_suspend(cluster, True)
    await cluster.run_operator()
    end(cluster, "job-worker-0", 0)
    await cluster.settle()
    set_suspend(cluster, False)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-1-1"]
    end(cluster, "job-worker-1-1", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_a_job_whose_last_member_succeeds_while_it_is_suspended_has_succeeded() -> None:
    cluster = life(replicas=1)
    await cluster.start()
    set_suspend(cluster, True)
    await cluster.run_operator()
    end(cluster, "job-worker-0", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_suspending_is_taken_back_in_the_middle() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    set_suspend(cluster, True)
    await cluster.run_operator()
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    cluster.check_final_state()


# --- pods that do not end, and pods of others -----------------------------------------------------------------------


def stuck(cluster: Cluster, name: str, *, grace: int | None = None) -> None:
    """A pod on a node that does not answer: it is to end, and nothing happens."""
    found = cluster.kube.objects[PODS, name]
    found["metadata"]["deletionTimestamp"] = format_time(cluster.now)
    if grace is not None:
        found["metadata"]["deletionGracePeriodSeconds"] = grace
    cluster.kube.set_status(PODS, name)


async def without_kubelet(cluster: Cluster, seconds: int) -> None:
    for _ in range(seconds // 2):
        await cluster.run_operator()


async def test_a_member_on_a_lost_node_is_not_replaced_unless_the_user_gives_it_up() -> None:
    cluster = life(replicas=2)
    await cluster.start()
    stuck(cluster, "job-worker-1")
    await without_kubelet(cluster, 1000)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]


async def test_a_member_on_a_lost_node_is_given_up_after_the_time_the_user_says() -> None:
    cluster = life(replicas=2, worker={"podForceDeleteSeconds": 60})
    await cluster.start()
    stuck(cluster, "job-worker-1")
    await without_kubelet(cluster, 56)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    await without_kubelet(cluster, 10)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1"]


async def test_a_master_on_a_lost_node_is_given_up_after_two_minutes() -> None:
    cluster = life(replicas=1)
    await cluster.start()
    stuck(cluster, "job-master")
    await without_kubelet(cluster, 110)
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master"]
    await without_kubelet(cluster, 20)
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]


async def test_a_pod_that_a_finalizer_holds_is_not_forced_again_and_again() -> None:
    cluster = life(replicas=2, worker={"podForceDeleteSeconds": 60})
    await cluster.start()
    stuck(cluster, "job-worker-1", grace=0)
    await without_kubelet(cluster, 100)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    writes = cluster.kube.writes
    await without_kubelet(cluster, 100)
    assert cluster.kube.writes == writes


@pytest.mark.parametrize("suspended", [True, False])
async def test_lost_nodes_do_not_keep_a_job_from_being_suspended_or_cleaned_up(suspended: bool) -> None:
    cluster = life(replicas=2, worker={"podForceDeleteSeconds": 60, "completion": {"minSucceeded": 1}})
    await cluster.start()
    if suspended:
        set_suspend(cluster, True)
    else:
        end(cluster, "job-worker-0", 0)
    await without_kubelet(cluster, 30)
    assert {"job-master", "job-worker-1"} <= {pod["metadata"]["name"] for pod in cluster.kube.all(PODS)}
    await without_kubelet(cluster, 250)
    assert [p["metadata"]["name"] for p in cluster.kube.all(PODS)] == ([] if suspended else ["job-worker-0"])


async def test_a_master_that_goes_on_failing_waits_and_in_the_end_fails_the_job() -> None:
    cluster = life(replicas=1, master={"restartLimit": 2})
    await cluster.start()
    for wait in (0, 10):
        (name,) = pod_names(cluster, names.ROLE_MASTER)
        end(cluster, name, 1)
        await tick(cluster)
        assert (pod_names(cluster, names.ROLE_MASTER) == [name]) == (wait > 0)
        await cluster.settle()
        assert pod_names(cluster, names.ROLE_MASTER) != [name]
    end(cluster, pod_names(cluster, names.ROLE_MASTER)[0], 1)
    await cluster.settle()
    assert "the master failed and spec.master.restartLimit 2 is used up" in status_of(cluster)["message"]


async def foreign_pod(cluster: Cluster, name: str) -> str:
    """Somebody else's pod, which happens to have a name of ours; return its UID."""
    labels = {names.LABEL_ROLE: "foreign", names.LABEL_INDEX: name}
    made = await cluster.kube.create(PODS, NAMESPACE, {"metadata": {"name": name, "labels": labels}})
    return str(made["metadata"]["uid"])


async def test_a_foreign_pod_of_our_name_is_left_alone_and_another_name_is_taken() -> None:
    cluster = life(replicas=2)
    theirs = await foreign_pod(cluster, "job-worker-1")
    await cluster.start()
    assert cluster.kube.objects[PODS, "job-worker-1"]["metadata"]["uid"] == theirs
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1"]
    assert cluster.job().status.phase == "Running"
    assert cluster.job().status.message == ""


async def test_after_every_name_that_is_taken_there_is_a_pause_and_the_job_tells_why() -> None:
    cluster = life(replicas=3)
    await cluster.start()
    for number in range(1, 6):
        await foreign_pod(cluster, f"job-worker-0-{number}")
    cluster.kube.remove(PODS, "job-worker-0")
    operator, pauses, told = cluster.operator, 0, set()
    await operator.watch()
    for _ in range(40):
        job = operator.store.job(JobKey(NAMESPACE, JOB))
        assert job is not None
        told.add(job.status.message)
        decision = decide(operator.store.observed(job), cluster.now, DEFAULTS)
        if not decision.actions:
            break
        try:
            await operator.executor.execute(job, decision.actions)
        except Retry:
            pauses += 1
    assert pauses == 5
    assert pod_names(cluster) == ["job-worker-0-6", "job-worker-1", "job-worker-2"]
    assert "pod job-worker-0-1 exists and is not this job's; it is left alone, and its name not used" in told


async def test_while_a_quota_is_used_up_one_pod_at_a_time_is_tried_and_names_are_kept() -> None:
    cluster = life(replicas=2, most=100)
    await cluster.start()
    create = cluster.kube.create

    async def over_quota(resource: Any, namespace: str | None, body: Any) -> Json:
        if resource == PODS:
            raise Refused(403, "Forbidden", "exceeded quota: pods=2")
        return await create(resource, namespace, body)

    cluster.kube.create = over_quota  # type: ignore[method-assign]
    await cluster.apply(SCALE_OUTS, "more", count=20)
    for _ in range(3):
        await cluster.operator.watch()
        with suppress(AssertionError):  # it would go on and on, after a pause each time
            await cluster.operator.work(cluster.now, rounds=10)
    assert cluster.job().status.replica_statuses["worker"].incarnations < 50
    assert "exceeded quota" in cluster.job().status.message
    cluster.kube.create = create  # type: ignore[method-assign]
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == 22


@pytest.mark.parametrize("refused", ["job-worker-0", "job-ps-"])
async def test_one_pod_that_is_refused_keeps_no_other_from_being_created(refused: str) -> None:
    cluster = life(replicas=3)
    cluster._body["spec"]["framework"] = "tensorflow"
    cluster._body["spec"]["replicaSpecs"]["ps"] = {**cluster._body["spec"]["replicaSpecs"]["worker"], "replicas": 2}
    await cluster.start()
    create = cluster.kube.create

    async def limited(resource: Any, namespace: str | None, body: Any) -> Any:
        if resource == PODS and body["metadata"]["name"].startswith(refused):
            raise Refused(403, "Forbidden", "maximum memory usage per Pod is 4Gi")
        return await create(resource, namespace, body)

    cluster.kube.create = limited  # type: ignore[method-assign]
    for pod in (*cluster.kube.pods("ps"), *cluster.kube.pods()):
        cluster.kube.remove(PODS, pod["metadata"]["name"])
    for _ in range(6):
        await cluster.operator.watch()
        with suppress(Retry):
            await cluster.operator.reconciler.reconcile(JobKey(NAMESPACE, JOB))
    found = sorted(f"job-{p['metadata']['labels'][names.LABEL_ROLE]}-{p['metadata']['labels'][names.LABEL_INDEX]}"
                   for p in (*cluster.kube.pods("ps"), *cluster.kube.pods()))  # fmt: skip
    every = ["job-ps-0", "job-ps-1", "job-worker-0", "job-worker-1", "job-worker-2"]
    assert found == [name for name in every if not name.startswith(refused)]
    assert "maximum memory" in cluster.job().status.message
