"""Tests members whose memory a plan has lowered.

A kill for lack of the removed memory is not counted as a restart. The member then keeps the memory
that it gets.
"""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ReplicaStatus
from elasticjob_api.meta import Json
from elasticjob_kube.resources import PODS, SCALE_PLANS, Resource

from tests.support.job_cluster import end_training
from tests.support.simulator.cluster import Cluster
from tests.support.simulator.nodes import Nodes, Resizes

NO_RESTARTS: Json = {"restartLimit": 0}


async def started(*, limit: str | None = None, worker: Json | None = None, **options: Any) -> Nodes:
    """Return nodes with a job whose template asks for 1Gi."""
    nodes = Nodes(Cluster(worker=worker or {}, **options))
    container = nodes.cluster._body["spec"]["replicaSpecs"]["worker"]["template"]["spec"][
        "containers"
    ][0]
    container["resources"] |= {"limits": {"memory": limit}} if limit else {}
    return await nodes.started()


async def set_memory(
    nodes: Nodes, memory: str, *, name: str = "lower", source: str = "Auto", **more: Any
) -> None:
    resource = {"memory": memory, **more}
    spec: Json = {"replicaResourceSpecs": {"worker": {"resource": resource}}}
    await nodes.cluster.apply(SCALE_PLANS, name, source=source, **spec)


async def lower(nodes: Nodes, memory: str = "256Mi", **options: Any) -> None:
    await set_memory(nodes, memory, **options)
    await nodes.settle()


def pod_of(nodes: Nodes, index: int) -> str:
    (name,) = [name for name in nodes.live_pods() if name.startswith(f"job-worker-{index}")]
    return name


def kill(nodes: Nodes, index: int = 0, reason: str = "OOMKilled") -> None:
    end_training(nodes.cluster, pod_of(nodes, index), 137, reason)


async def until_restarted(nodes: Nodes) -> None:
    def is_running() -> bool:
        pods = [pod for pod in nodes.cluster.kube.pods() if pod["status"]["phase"] == "Running"]
        return any(pod["metadata"]["labels"][names.LABEL_INDEX] == "0" for pod in pods)

    nodes.cluster.now += 60
    await nodes.until(is_running)


def worker(nodes: Nodes) -> ReplicaStatus:
    return nodes.cluster.job().status.replica_statuses["worker"]


def memory_of(nodes: Nodes, index: int) -> Any:
    return nodes.requests("memory")[pod_of(nodes, index)]


RULES: dict[str, list[Json]] = {
    "the default ones": [],
    "one that fails the job": [{"action": "FailJob", "reasons": ["OOMKilled"]}],
    "one that counts": [{"action": "Restart", "reasons": ["OOMKilled"]}],
    "one by the signal": [{"action": "RestartWithMoreMemory", "exitCodes": [137]}],
}


@pytest.mark.guarantee("lowered-memory-is-uncounted")
@pytest.mark.parametrize("limit", [None, "1Gi"])
@pytest.mark.parametrize("rules", RULES)
async def test_a_kill_after_a_lowering_is_not_counted_and_gives_the_templates_memory_back(
    rules: str, limit: str | None
) -> None:
    nodes = await started(
        limit=limit,
        replicas=2,
        worker={**NO_RESTARTS, "restartRules": RULES[rules]},
        runPolicy={"backoffLimit": 0},
    )
    await lower(nodes)
    assert set(nodes.requests("memory").values()) == {"256Mi"}
    kill(nodes, reason="" if rules == "one by the signal" else "OOMKilled")
    await until_restarted(nodes)
    assert (memory_of(nodes, 0), memory_of(nodes, 1)) == ("1024Mi", "256Mi")
    assert (worker(nodes).restarts, worker(nodes).uncounted_by_index) == (0, {"0": 1})
    assert nodes.cluster.job().status.phase == "Running"
    nodes.cluster.check_final_state()


async def test_a_kill_that_only_the_agent_has_seen_is_one() -> None:
    nodes = await started(replicas=1, worker=NO_RESTARTS)
    await lower(nodes)
    terminated = {"exitCode": 137, "reason": "Error", "message": names.KILLED_FOR_MEMORY}
    ended = [{"name": "train", "state": {"terminated": terminated}}]
    nodes.cluster.kube.set_status(
        PODS, pod_of(nodes, 0), phase="Failed", conditions=[], containerStatuses=ended
    )
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "1024Mi"


@pytest.mark.parametrize(("code", "reason"), [(1, "Error"), (137, "Error"), (139, "Error")])
async def test_another_end_after_a_lowering_is_counted(code: int, reason: str) -> None:
    nodes = await started(replicas=1)
    await lower(nodes)
    end_training(nodes.cluster, pod_of(nodes, 0), code, reason)
    await until_restarted(nodes)
    assert worker(nodes).restarts == 1
    assert memory_of(nodes, 0) == "256Mi"


@pytest.mark.guarantee("unset-resources")
async def test_without_a_request_in_the_template_the_first_kill_after_a_plan_is_not_counted() -> (
    None
):
    nodes = Nodes(Cluster(worker={"restartLimit": 1}, replicas=1))
    container = nodes.cluster._body["spec"]["replicaSpecs"]["worker"]["template"]["spec"][
        "containers"
    ][0]
    container.pop("resources")
    await nodes.started()
    await lower(nodes, "512Mi")
    kill(nodes)
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "1024Mi", "twice what the first minutes had shown"
    assert (worker(nodes).restarts, worker(nodes).uncounted_restarts) == (0, 1)
    kill(nodes)
    await until_restarted(nodes)
    assert (worker(nodes).restarts, worker(nodes).uncounted_restarts) == (1, 1)


@pytest.mark.guarantee("lowered-memory-is-uncounted")
async def test_the_next_kill_counts_as_ever() -> None:
    nodes = await started(replicas=1, worker={"restartLimit": 1})
    await lower(nodes)
    kill(nodes)
    await until_restarted(nodes)
    kill(nodes)
    await until_restarted(nodes)
    assert (worker(nodes).restarts, worker(nodes).uncounted_restarts) == (1, 1)
    assert memory_of(nodes, 0) == "2048Mi"
    kill(nodes)
    await nodes.until(lambda: nodes.cluster.job().status.phase == "Failed")
    assert (
        "restartLimit 1 is used up: exit code 137, OOMKilled" in nodes.cluster.job().status.message
    )


@pytest.mark.guarantee("lowered-memory-is-uncounted")
async def test_lowering_it_again_takes_nothing_back_so_that_no_further_kill_is_free() -> None:
    nodes = await started(replicas=2, worker={"restartLimit": 1})
    for number in range(2):
        await lower(nodes, name=f"lower-{number}")
        kill(nodes)
        await until_restarted(nodes)
    assert (worker(nodes).restarts, worker(nodes).uncounted_restarts) == (1, 1)
    assert memory_of(nodes, 0) == "2048Mi"


@pytest.mark.guarantee("lowered-memory-is-uncounted")
async def test_only_one_kill_is_not_counted_if_another_controller_lowers_the_memory() -> None:
    nodes = await started(replicas=1, worker={"restartLimit": 10})

    def with_less(resource: Resource, body: Json) -> None:
        if resource == PODS and names.LABEL_INDEX in body["metadata"]["labels"]:
            body["spec"]["containers"][0]["resources"]["requests"]["memory"] = "100Mi"

    nodes.cluster.kube.before_create = with_less
    nodes.cluster.kube.remove(PODS, pod_of(nodes, 0))
    await until_restarted(nodes)
    before = worker(nodes).uncounted_restarts
    for _ in range(3):
        kill(nodes)
        await until_restarted(nodes)
    assert (worker(nodes).restarts, worker(nodes).uncounted_restarts - before) == (2, 1)


@pytest.mark.parametrize(
    ("lowered", "most", "given"),
    [
        ("768Mi", None, "1536Mi"),
        ("512Mi", None, "1024Mi"),
        ("768Mi", "1280Mi", "1280Mi"),
        ("768Mi", "512Mi", "1024Mi"),
    ],
)
async def test_it_gets_twice_its_last_memory_if_that_is_more_than_the_templates(
    lowered: str, most: str | None, given: str
) -> None:
    nodes = await started(replicas=1, worker=NO_RESTARTS | ({"maxMemory": most} if most else {}))
    await lower(nodes, lowered)
    kill(nodes)
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == given


async def test_a_kill_while_the_plan_still_lowers_others_is_not_counted_either() -> None:
    nodes = await started(replicas=2, worker=NO_RESTARTS)
    nodes.lost = frozenset({"job-worker-1"})
    await set_memory(nodes, "256Mi")
    await nodes.until(lambda: nodes.requests("memory")["job-worker-1"] == "256Mi")
    assert nodes.plan("lower")["phase"] == "Executing"
    kill(nodes)
    await until_restarted(nodes)
    assert (memory_of(nodes, 0), worker(nodes).restarts) == ("1024Mi", 0)
    nodes.lost = frozenset()
    await nodes.settle()
    assert sorted(nodes.requests("memory").values()) == ["1024Mi", "256Mi"]
    nodes.cluster.kube.remove(PODS, pod_of(nodes, 0))
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "1024Mi"


@pytest.mark.guarantee("lowered-memory-is-uncounted")
@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.parametrize("fault", ["crash_in", "lose_answer_in"])
async def test_it_is_not_counted_once_whenever_the_operator_dies(fault: str, write: int) -> None:
    nodes = await started(replicas=1, worker=NO_RESTARTS)
    await lower(nodes)
    setattr(nodes.cluster.kube, fault, write)
    kill(nodes)
    await until_restarted(nodes)
    await nodes.settle()
    assert (worker(nodes).restarts, worker(nodes).uncounted_restarts) == (0, 1)
    assert memory_of(nodes, 0) == "1024Mi"


@pytest.mark.guarantee("lowered-memory-is-uncounted")
@pytest.mark.parametrize("resizes", ["InPlace", "Infeasible"])
@pytest.mark.parametrize(("source", "kept"), [("Auto", "2048Mi"), ("Manual", "512Mi")])
async def test_memory_that_a_member_was_given_is_its_own_unless_a_user_says_otherwise(
    source: str, kept: str, resizes: Resizes
) -> None:
    nodes = await started(replicas=2)
    kill(nodes)
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "2048Mi"
    nodes.resizes = resizes
    await lower(nodes, "512Mi", source=source, cpu="2")
    assert nodes.plan("lower")["phase"] == "Succeeded"
    assert sorted(nodes.requests("memory").values()) == sorted([kept, "512Mi"])
    assert set(nodes.requests("cpu").values()) == {"2"}
    for name in nodes.live_pods():
        nodes.cluster.kube.remove(PODS, name)
    await nodes.settle()
    assert sorted(nodes.requests("memory").values()) == sorted([kept, "512Mi"]), (
        "and so has its next pod"
    )
    assert set(nodes.requests("cpu").values()) == {"2"}
    nodes.cluster.check_final_state()


async def test_more_memory_for_all_replaces_what_a_member_was_given() -> None:
    nodes = await started(replicas=2)
    kill(nodes)
    await until_restarted(nodes)
    await lower(nodes, "4Gi")
    assert set(nodes.requests("memory").values()) == {"4Gi"}
    assert worker(nodes).resources_by_index == {}


async def test_an_auto_plan_that_ends_early_takes_nothing_either() -> None:
    nodes = await started(replicas=3)
    kill(nodes)
    await until_restarted(nodes)
    nodes.resizes = "Infeasible"
    nodes.stuck = lambda pod: "no room" if pod["metadata"]["name"] == "job-worker-3" else ""
    await lower(nodes, "512Mi")
    assert nodes.plan("lower")["phase"] in ("Failed", "PartiallySucceeded")
    assert memory_of(nodes, 0) == "2048Mi"
    nodes.cluster.kube.remove(PODS, pod_of(nodes, 0))
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "2048Mi"


async def test_what_members_keep_counts_for_the_limit_of_all() -> None:
    nodes = await started(replicas=2, autoscaling={"resourceLimits": {"memory": "3Gi"}})
    kill(nodes)
    await until_restarted(nodes)
    spec: Json = {
        "replicaResourceSpecs": {"worker": {"replicas": 4, "resource": {"memory": "512Mi"}}}
    }
    await nodes.cluster.apply(SCALE_PLANS, "grow", source="Auto", **spec)
    await nodes.settle()
    assert nodes.plan("grow")["phase"] == "Failed"
    assert (
        "would request memory 3758096384, above the job's limit 3Gi"
        in nodes.plan("grow")["message"]
    )


@pytest.mark.guarantee("lowered-memory-is-uncounted")
@pytest.mark.parametrize("most", [None, "3Gi"])
async def test_memory_added_by_restarts_stays_although_plans_may_not_request_it(
    most: str | None,
) -> None:
    more = {"maxMemory": most} if most else {}
    nodes = await started(
        replicas=1, worker=more, autoscaling={"resourceLimits": {"memory": "1536Mi"}}
    )
    kill(nodes)
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "2048Mi"
    nodes.cluster.kube.remove(PODS, pod_of(nodes, 0))
    await until_restarted(nodes)
    assert memory_of(nodes, 0) == "2048Mi"
