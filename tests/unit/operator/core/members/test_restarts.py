"""Tests that ends of members and masters are counted.

A restart follows at once, after a back-off, or never.
"""

from __future__ import annotations

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import BackOff
from elasticjob_api.times import format_time
from elasticjob_kube.resources import PODS
from elasticjob_operator.core.members import backoff

from tests.support.job_cluster import end_training, new_cluster, pod_names, reconcile_now, status_of

NOON = 1_767_268_800.0


async def test_a_member_that_keeps_failing_is_restarted_after_ever_longer_waits() -> None:
    cluster = new_cluster(replicas=1, worker={"restartLimit": 10})
    await cluster.start()
    for number, wait in enumerate((0, 10, 20, 40)):
        (name,) = pod_names(cluster)
        end_training(cluster, name, 1)
        if wait:
            cluster.now += wait - 2
            await reconcile_now(cluster)
            assert pod_names(cluster) == [name], "the failed pod stays until then, for its logs"
            assert status_of(cluster)["message"].startswith("restarts: worker 0 at ")
            assert status_of(cluster)["message"].endswith(
                f"; last failure: {name}: exit code 1: last words"
            )
            cluster.now += 2
        await reconcile_now(cluster)
        assert pod_names(cluster) == [f"job-worker-0-{number + 1}"], f"after {wait} s"
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert (
        worker["restarts"]
        == worker["restartsByIndex"]["0"]
        == worker["backOff"]["0"]["failures"]
        == 4
    )
    assert status_of(cluster)["restarts"] == 4
    assert "message" not in status_of(cluster)
    assert status_of(cluster)["lastFailure"] == "job-worker-0-3: exit code 1: last words"
    assert status_of(cluster).get("uncountedRestarts", 0) == 0


@pytest.mark.parametrize("role", [names.ROLE_WORKER, names.ROLE_MASTER])
async def test_the_operator_looks_again_when_a_wait_is_over_although_nothing_changes(
    role: str,
) -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    for _ in range(2):
        end_training(cluster, pod_names(cluster, role)[0], 1)
        await reconcile_now(cluster)
    await cluster.operator.watch()
    assert await cluster.operator.work(cluster.now) == pytest.approx(10, abs=1.1)


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
async def test_a_node_with_a_wrong_clock_changes_no_wait(behind: float) -> None:
    cluster = new_cluster(replicas=1, worker={"restartLimit": 10})
    await cluster.start()
    for wait in (0, 10, 20):
        (name,) = pod_names(cluster)
        end_training(cluster, name, 1, ago=behind)
        failed = pod_names(cluster)
        since = cluster.now
        await reconcile_now(cluster)
        assert (pod_names(cluster) == failed) == (wait > 0)
        cluster.now = since + wait + 2
        await reconcile_now(cluster)
        assert pod_names(cluster) != failed


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_clock_that_is_set_back_makes_no_wait_longer(ahead: float) -> None:
    wait = BackOff(failures=9, until=format_time(NOON + ahead + backoff.MAX_DELAY_SECONDS))
    assert backoff.seconds_left(wait, NOON) <= backoff.MAX_DELAY_SECONDS


async def test_counts_are_reported_though_the_clock_was_set_back() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    cluster.now -= 3600
    cluster.kube.set_status(PODS, "job-worker-1", conditions=[])
    await reconcile_now(cluster)
    assert status_of(cluster)["workers"] == "1/2"


async def test_a_failure_after_a_long_run_is_restarted_at_once() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    for ran in (1.0, 601.0):
        (before,) = pod_names(cluster)
        end_training(cluster, before, 1, ran=ran)
        await reconcile_now(cluster)
        assert pod_names(cluster) != [before]
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert (worker["restarts"], worker["backOff"]["0"]["failures"]) == (2, 1)


@pytest.mark.guarantee("uncounted-failures")
@pytest.mark.parametrize("ending", ["vanished", "drained", "evicted", "deleted"])
async def test_an_interrupted_pod_is_replaced_uncounted_at_once_and_later_if_it_repeats(
    ending: str,
) -> None:
    cluster = new_cluster(replicas=2, worker={"restartLimit": 0}, runPolicy={"backoffLimit": 0})
    await cluster.start()
    await reconcile_now(cluster)

    def interrupt(name: str) -> None:
        if ending == "vanished":
            cluster.kube.remove(PODS, name)
        elif ending == "drained":
            end_training(cluster, name, names.EXIT_DRAINED)
        elif ending == "evicted":
            cluster.kube.set_status(PODS, name, phase="Failed", reason="Evicted", conditions=[])
        else:
            cluster.kube.mark_deleted(PODS, name)

    interrupt("job-worker-1")
    await reconcile_now(cluster, 4)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1"]
    interrupt("job-worker-1-1")
    await reconcile_now(cluster, 4)
    assert "job-worker-1-2" not in pod_names(cluster)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-2"]
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert worker["uncountedByIndex"] == {"1": 2}
    assert (worker["uncountedRestarts"], worker.get("restarts", 0)) == (2, 0)
    assert cluster.job().status.phase == "Running"


@pytest.mark.guarantee("first-matching-rule-decides")
@pytest.mark.parametrize("write", range(1, 14))
@pytest.mark.parametrize("fault", ["crash_in", "lose_answer_in"])
async def test_every_end_is_counted_once_whenever_the_operator_dies(fault: str, write: int) -> None:
    cluster = new_cluster(replicas=3, worker={"restartLimit": 10})
    await cluster.start()
    await cluster.settle()
    setattr(cluster.kube, fault, write)
    end_training(cluster, "job-worker-0", 1)
    end_training(cluster, "job-worker-1", names.EXIT_DRAINED)
    cluster.kube.remove(PODS, "job-worker-2")
    await cluster.settle()
    setattr(cluster.kube, fault, None)
    for name in pod_names(cluster)[:1]:
        end_training(cluster, name, 1)
    await cluster.settle()
    worker = cluster.job().status.replica_statuses["worker"]
    assert worker.restarts_by_index == {"0": 2}
    assert worker.uncounted_by_index == {"1": 1, "2": 1}
    assert (worker.restarts, worker.uncounted_restarts) == (2, 2)
    cluster.check_final_state()


async def test_the_job_fails_when_all_members_together_have_failed_too_often() -> None:
    cluster = new_cluster(replicas=3, runPolicy={"backoffLimit": 1})
    await cluster.start()
    end_training(cluster, "job-worker-0", 1)
    end_training(cluster, "job-worker-1", 3)
    await cluster.settle()
    status = status_of(cluster)
    assert status["phase"] == "Failed"
    assert status["message"].startswith("2 counted restarts are above runPolicy.backoffLimit 1: ")
    assert "exit code 3: last words" in status["message"]


@pytest.mark.guarantee("uncounted-failures")
async def test_memory_grows_until_its_limit_and_then_it_is_a_plain_failure() -> None:
    cluster = new_cluster(replicas=1, worker={"maxMemory": "3Gi"})
    await cluster.start()
    for memory in ("2048Mi", "3072Mi", "3072Mi"):
        end_training(cluster, pod_names(cluster)[0], 137, "OOMKilled")
        await cluster.settle()
        assert (
            cluster.kube.pods()[0]["spec"]["containers"][0]["resources"]["requests"]["memory"]
            == memory
        )
    end_training(cluster, pod_names(cluster)[0], 137, "OOMKilled")
    await cluster.settle()
    assert "restartLimit 3 is used up: exit code 137, OOMKilled" in status_of(cluster)["message"]


@pytest.mark.guarantee("first-matching-rule-decides")
async def test_a_permanent_error_fails_the_job_at_once_with_its_message() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    end_training(cluster, "job-worker-0", 127)
    await cluster.settle()
    assert status_of(cluster)["message"] == "worker 0 failed: exit code 127: last words"
    assert pod_names(cluster) == ["job-worker-0"], "its logs stay readable"


async def test_a_pattern_that_is_no_regular_expression_fails_the_job_at_once() -> None:
    cluster = new_cluster(worker={"restartRules": [{"action": "Ignore", "messagePattern": "("}]})
    await cluster.start()
    assert cluster.job().status.phase == "Failed"
    assert cluster.job().status.message.startswith(
        "spec.replicaSpecs.worker.restartRules[0].messagePattern: '(' is not"
    )
    assert cluster.kube.all(PODS) == []


async def test_a_master_that_keeps_failing_waits_and_in_the_end_fails_the_job() -> None:
    cluster = new_cluster(replicas=1, master={"restartLimit": 2})
    await cluster.start()
    for wait in (0, 10):
        (name,) = pod_names(cluster, names.ROLE_MASTER)
        end_training(cluster, name, 1)
        await reconcile_now(cluster)
        assert (pod_names(cluster, names.ROLE_MASTER) == [name]) == (wait > 0)
        await cluster.settle()
        assert pod_names(cluster, names.ROLE_MASTER) != [name]
    end_training(cluster, pod_names(cluster, names.ROLE_MASTER)[0], 1)
    await cluster.settle()
    assert (
        "the master failed and spec.master.restartLimit 2 is used up"
        in status_of(cluster)["message"]
    )


@pytest.mark.guarantee("uncounted-failures")
@pytest.mark.parametrize("counters", ["0", "2", "999999999"])
@pytest.mark.parametrize("role", [names.ROLE_WORKER, names.ROLE_MASTER])
async def test_counters_that_a_user_writes_on_a_pod_change_no_count(
    role: str, counters: str
) -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    end_training(cluster, pod_names(cluster, role)[0], 1)
    await cluster.settle()
    (name,) = pod_names(cluster, role)
    annotations = {names.ANNOTATION_RESTARTS: counters, names.ANNOTATION_UNCOUNTED: counters}
    cluster.kube.edit_metadata(PODS, name, lambda found: found["annotations"].update(annotations))
    await cluster.settle()
    end_training(cluster, name, 137)
    await cluster.settle()
    status = status_of(cluster)
    assert status["phase"] == "Running"
    assert pod_names(cluster, role) not in ([], [name])
    if role == names.ROLE_WORKER:
        assert status["replicaStatuses"]["worker"]["restartsByIndex"] == {"0": 2}
    else:
        assert status["master"]["restarts"] <= 2


@pytest.mark.parametrize(
    ("restart_limit", "back_off_limit", "made"), [(0, 10, 0), (2, 10, 2), (10, 0, 0), (10, 1, 1)]
)
async def test_a_failure_that_ends_the_job_is_not_shown_as_a_restart(
    restart_limit: int, back_off_limit: int, made: int
) -> None:
    cluster = new_cluster(
        replicas=1,
        worker={"restartLimit": restart_limit},
        runPolicy={"backoffLimit": back_off_limit},
    )
    await cluster.start()
    for _ in range(made + 1):
        end_training(cluster, pod_names(cluster)[-1], 1)
        await cluster.settle()
    status = status_of(cluster)
    assert (status["phase"], status["restarts"]) == ("Failed", made)
    assert status["replicaStatuses"]["worker"]["restartsByIndex"] == {"0": made + 1}
