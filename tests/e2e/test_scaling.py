"""Changes a job's size and resources in every way, as a user does with kubectl, and checks what the
user sees.

One operator serves all jobs of this file. The jobs of all tests that run are applied first, so that
they start in parallel.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e import images
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import EXAMPLES, Sandbox, new_sandbox
from tests.support.e2e.scaling_jobs import JOBS, LEAVING_NODE, LEAVING_TAINT, RESOURCES
from tests.support.e2e.second_node import SecondNode
from tests.support.e2e.target_cluster import TargetCluster

SECOND_NODE = "a second node is a second process node"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    cluster: TargetCluster,
    shared_folder: None,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncIterator[tuple[Sandbox, Path]]:
    root = tmp_path_factory.mktemp("trainings")
    used = {job_of(item) for item in request.session.items if item.path == request.path}
    if cluster.real:
        used.discard("evicted")
    with ExitStack() as nodes:
        if "evicted" in used:
            nodes.enter_context(leaving_node(cluster, tmp_path_factory.mktemp("node")))
        async with new_sandbox(cluster) as sandbox:
            for name in used:
                (root / name).mkdir()
                (root / name).chmod(0o777)
            sandbox.apply(*(JOBS[name](name, root / name) for name in sorted(used)))
            yield sandbox, root


@contextmanager
def leaving_node(cluster: TargetCluster, directory: Path) -> Iterator[None]:
    """Run a second node, for pods that tolerate its taint only."""
    node = SecondNode(
        cluster.kubeconfig, directory, LEAVING_NODE, taints=[f"{LEAVING_TAINT}=:NoSchedule"]
    )
    try:
        cluster.kubectl("wait", "--for=create", f"node/{LEAVING_NODE}", "--timeout=50s")
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{LEAVING_NODE}", "--timeout=50s")
        yield
    finally:
        node.end(signal.SIGTERM)
        print(f"--- log of {LEAVING_NODE} ---\n{node.log()}")
        cluster.kubectl("delete", "node", LEAVING_NODE)


@pytest.fixture
def user(shared: tuple[Sandbox, Path], request: pytest.FixtureRequest) -> KubectlUser:
    """Return the user of the test's job."""
    sandbox, root = shared
    name = job_of(request.node)
    return KubectlUser(sandbox, name, root / name)


def job_of(test: pytest.Item) -> str:
    """Return the job that a test is marked with, or the one that most tests share."""
    mark = test.get_closest_marker("job")
    return str(mark.args[0]) if mark else "sized"


# --- the size


def test_kubectl_scale_becomes_a_plan_and_the_spec_and_the_pods_agree(user: KubectlUser) -> None:
    before = user.begin(2)
    plans = plan_names(user)
    user.kubectl("scale", "ej/sized", "--replicas=3")
    user.runs_with(3)
    assert before.items() < user.pods().items(), "a worker that stays was replaced"
    (plan,) = plans_since(user, plans)
    assert (plan["spec"]["source"], plan["status"]["phase"]) == ("Spec", "Succeeded")
    assert plan["status"]["createdPods"] == [*(set(user.pods()) - set(before))]


def test_a_scale_out_adds_workers_and_names_them(user: KubectlUser) -> None:
    before = user.begin(2)
    status = user.create("ScaleOut", "more", count=2)
    user.runs_with(4)
    assert sorted(status["pods"]) == sorted(set(user.pods()) - set(before))


def test_a_scale_in_by_count_removes_the_highest_indices(user: KubectlUser) -> None:
    before = user.begin(3)
    status = user.create("ScaleIn", "fewer", count=1)
    user.runs_with(2)
    gone = set(before) - set(user.pods())
    assert sorted(status["pods"]) == sorted(gone)
    assert all(index(name) > index(kept) for name in gone for kept in user.pods())


@pytest.mark.thorough
def test_a_scale_in_by_name_removes_only_that_worker_and_training_continues(
    user: KubectlUser,
) -> None:
    before = user.begin(3)
    leaving = min(before)  # the oldest worker: the training's rank 0
    steps = user.worlds()[-1][1]
    status = user.create("ScaleIn", "named", podNames=[leaving])
    user.runs_with(2)
    assert status["pods"] == [leaving]
    assert set(user.pods().items()) == set(before.items()) - {(leaving, before[leaving])}
    assert user.worlds()[-1][1] > steps, "the leaving worker had no time to save its step"


# --- roles


@pytest.mark.guarantee("changed-roles")
def test_a_role_without_an_agent_is_added_and_removed_while_workers_train(
    user: KubectlUser,
) -> None:
    before = user.begin(2)
    worlds = user.worlds()
    plans = plan_names(user)
    container = {
        "name": "store",
        "image": images.TRAINER,
        "command": ["sleep", "600"],
        "resources": RESOURCES,
    }
    store = {"agent": "None", "replicas": 2, "template": {"spec": {"containers": [container]}}}
    with_roles(user, store=store)
    user.until("the store is ready", lambda: role_status(user, "store").get("ready") == 2)
    with_roles(user, store=None)
    user.until(
        "the store is deleted",
        lambda: not role_status(user, "store") and not role_pods(user, "store"),
    )
    assert user.pods() == before, "a worker was replaced"
    assert user.worlds() == worlds, "the world has changed"

    def done() -> list[tuple[str, str]]:
        return [
            (plan["spec"]["source"], plan["status"].get("phase", ""))
            for plan in plans_since(user, plans)
        ]

    user.until("the end of both plans", lambda: done() == [("Spec", "Succeeded")] * 2)


@pytest.mark.guarantee("changed-roles")
def test_a_role_with_an_agent_joins_the_world_and_saves_its_work_before_it_leaves(
    user: KubectlUser,
) -> None:
    before = user.begin(2)
    worker = user.get("ej/sized")["spec"]["replicaSpecs"]["worker"]
    with_roles(user, helper={"replicas": 1, "drainSeconds": 10, "template": worker["template"]})
    user.until("a world of three", lambda: user.worlds()[-1][0] == 3)
    step = user.worlds()[-1][1]
    with_roles(user, helper=None)
    user.until("a world of two", lambda: user.worlds()[-1][0] == 2)
    user.until(
        "the helper is deleted",
        lambda: not role_status(user, "helper") and not role_pods(user, "helper"),
    )
    assert user.worlds()[-1][1] > step, "the training did not continue from its last step"
    assert user.pods() == before, "a worker was replaced"


def with_roles(user: KubectlUser, **roles: Json | None) -> None:
    """Add these roles, or remove them (None)."""
    patch = {"spec": {"replicaSpecs": roles}}
    user.kubectl("patch", f"ej/{user.job}", "--type=merge", "-p", json.dumps(patch))


def role_status(user: KubectlUser, role: str) -> Json:
    found: Json = user.status()["replicaStatuses"].get(role, {})
    return found


def role_pods(user: KubectlUser, role: str) -> str:
    return user.kubectl(
        "get",
        "pods",
        "-o",
        "name",
        "-l",
        f"{names.LABEL_JOB_NAME}={user.job},{names.LABEL_ROLE}={role}",
    )


# --- plans of every form


def test_a_plan_sets_the_count(user: KubectlUser) -> None:
    user.begin(2)
    user.create("ScalePlan", "count", replicaResourceSpecs={"worker": {"replicas": 3}})
    user.runs_with(3)


def test_a_plan_changes_cpu_and_memory_of_running_pods_in_place(user: KubectlUser) -> None:
    before = user.begin(2)
    wanted = {"cpu": "20m", "memory": "192Mi"}
    status = user.create(
        "ScalePlan", "bigger", replicaResourceSpecs={"worker": {"resource": wanted}}
    )
    assert user.pods() == before, "a pod was replaced"
    assert sorted(status["resizedPods"]) == sorted(before)
    for name in before:
        assert allocated_resources(user, name)["requests"] == wanted
        assert allocated_resources(user, name)["limits"]["memory"] == wanted["memory"]


def test_a_migrated_member_stays_until_its_replacement_is_ready(
    user: KubectlUser,
) -> None:
    before = user.begin(2)
    old = min(before)
    worlds = len(user.worlds())
    wanted = {"cpu": "40m", "memory": "240Mi"}
    status = user.create("ScalePlan", "moved", migratePods=[{"name": old, "resource": wanted}])
    user.runs_with(2, worlds=worlds + 1)
    (new,) = set(user.pods()) - set(before)
    assert old not in user.pods()
    assert allocated_resources(user, new)["requests"] == wanted
    assert [(m["role"], m["index"], m["phase"]) for m in status["migrations"]] == [
        ("worker", index(old), "Done")
    ]
    assert (status["createdPods"], status["removedPods"]) == ([new], [old])
    assert not status.get("drainingPods")
    assert not status.get("forcedPods"), "the agent did not confirm its drain in time"
    changes = user.worlds()[worlds:]
    assert [size for size, _ in changes] == [2], "a migration is one change of the world"
    assert changes[0][1] > user.worlds()[worlds - 1][1], (
        "the training did not continue from its last step"
    )


def test_resources_that_no_node_has_are_rejected_with_the_clusters_message(
    user: KubectlUser,
) -> None:
    before = user.begin(2)
    resources = {name: allocated_resources(user, name) for name in before}
    wish = {"worker": {"resource": {"cpu": "1000"}}}
    user.request("ScalePlan", "too-big", replicaResourceSpecs=wish, timeoutSeconds=15)
    user.wait("sp/too-big", ".status.phase", "Failed")
    message = user.status("sp/too-big")["message"]
    assert "node didn't have enough allocatable resources: cpu" in message
    assert "Insufficient cpu" in message
    user.runs_with(2)
    assert user.pods() == before
    assert {name: allocated_resources(user, name) for name in before} == resources


@pytest.mark.thorough
@pytest.mark.embedded_only("it counts the CPUs that the process node is said to have")
def test_a_resize_with_room_for_one_is_done_once_and_the_plan_names_the_others(
    user: KubectlUser,
) -> None:
    before = user.begin(2)
    had = {name: allocated_resources(user, name)["requests"]["cpu"] for name in before}
    wish = {"worker": {"resource": {"cpu": "40"}}}  # the node has 64
    user.request("ScalePlan", "too-full", replicaResourceSpecs=wish, timeoutSeconds=2)
    user.wait("sp/too-full", ".status.phase", "PartiallySucceeded")
    status = user.status("sp/too-full")
    assert "resize is Deferred" in status["message"]
    assert "1 of 2 members keep the resources they had" in status["message"]
    user.runs_with(2)
    assert user.pods() == before
    (resized,) = status["resizedPods"]
    has = {name: allocated_resources(user, name)["requests"]["cpu"] for name in before}
    assert has == {**had, resized: "40"}
    user.create(
        "ScalePlan", "smaller", replicaResourceSpecs={"worker": {"resource": {"cpu": "20m"}}}
    )


def test_kubectl_get_shows_jobs_plans_and_requests(user: KubectlUser) -> None:
    user.begin(2)
    user.create("ScaleOut", "shown-out", count=1)
    user.create("ScaleIn", "shown-in", count=1)
    user.runs_with(2)
    tables = [
        table.splitlines()
        for table in user.kubectl("get", "ej,sp,scalein,scaleout").strip().split("\n\n")
    ]
    heads = [table[0].split() for table in tables]
    assert heads == [
        ["NAME", "PHASE", "WORKERS", "STEP", "RATE", "ETA", "RESTARTS", "AGE"],
        ["NAME", "JOB", "SOURCE", "CHANGE", "PHASE", "AGE"],
        ["NAME", "JOB", "PHASE", "AGE"],
        ["NAME", "JOB", "PHASE", "AGE"],
    ]
    jobs, plans, ins, outs = (
        {line.split()[0]: line.split() for line in table[1:]} for table in tables
    )
    assert jobs["elasticjob.elasticjob.dev/sized"][1:3] == ["Running", "2/2"]
    assert ins["scalein.elasticjob.dev/shown-in"][1:3] == ["sized", "ScaleSucceeded"]
    assert outs["scaleout.elasticjob.dev/shown-out"][1:3] == ["sized", "ScaleSucceeded"]
    plan = user.status("scaleout/shown-out")["plan"]
    assert plans[f"scaleplan.elasticjob.dev/{plan}"][1:7] == [
        "sized",
        "ScaleOut",
        "worker",
        "2",
        "to",
        "3",
    ]


@pytest.mark.guarantee("refusals-name-the-bound")
def test_an_impossible_request_names_field_value_and_bound_and_changes_nothing(
    user: KubectlUser,
) -> None:
    before = user.begin(2)
    user.request("ScaleOut", "too-many", count=50)
    user.wait("scaleout/too-many", ".status.phase", "ScaleFailed")
    message = user.status("scaleout/too-many")["message"]
    assert "52" in message
    assert "maxReplicas 6" in message
    assert user.pods() == before


def test_the_examples_are_accepted(user: KubectlUser) -> None:
    folders = [EXAMPLES, *(EXAMPLES / "frameworks").iterdir()]
    manifests = [
        text
        for folder in folders
        for path in folder.glob("*.yaml")
        for text in path.read_text().split("\n---")
    ]
    answer = user.kubectl(
        "apply", "--dry-run=server", *(f"--filename={folder}" for folder in folders)
    ).splitlines()
    assert len(answer) == len(manifests)
    assert all(line.endswith("created (server dry run)") for line in answer), answer


# --- restart


@pytest.mark.guarantee("job-retry")
@pytest.mark.job("restarted")
def test_a_failed_job_restarts_with_new_pods_and_the_failed_one_stays_readable(
    user: KubectlUser,
) -> None:
    user.runs_with(2)
    status = user.status()
    assert status["retries"] == 1
    assert status.get("restarts", 0) == 0
    assert not {"restarted-worker-0", "restarted-worker-1"} & user.pods().keys(), (
        "all members are new"
    )
    failed = status["lastFailure"].partition(":")[0]
    assert "no luck" in user.kubectl("logs", failed)
    user.finish()


# --- suspend, cancel, delete


@pytest.mark.thorough
@pytest.mark.job("paused")
def test_a_suspended_training_continues_from_its_step_with_its_size(
    user: KubectlUser,
) -> None:
    user.begin(2)
    suspend(user, True)
    user.wait("ej/paused", ".status.phase", "Suspended")
    assert user.pods() == {}
    saved = int((user.folder / "step").read_text())
    worlds = len(user.worlds())
    suspend(user, False)
    user.runs_with(2, worlds=worlds + 1)
    assert user.worlds()[worlds][1] == saved
    job = user.status()["replicaStatuses"]["worker"]
    assert job.get("restarts", 0) == 0, "a suspension is not a failure of a member"
    user.finish()


@pytest.mark.guarantee("job-stopped-for-good")
@pytest.mark.job("stopped")
def test_a_stopped_training_saves_its_step_and_ends_for_good_with_its_own_reason(
    user: KubectlUser,
) -> None:
    user.begin(1)
    user.kubectl(
        "patch", "ej/stopped", "--type=merge", "-p", '{"spec": {"runPolicy": {"stop": true}}}'
    )
    user.kubectl("wait", "--for=condition=Failed", "ej/stopped", "--timeout=50s")
    (condition,) = [each for each in user.status()["conditions"] if each["type"] == "Failed"]
    assert (condition["reason"], user.status()["phase"]) == ("Stopped", "Stopped")
    assert user.status().get("retries", 0) == 0
    assert user.pods() == {}
    assert int((user.folder / "step").read_text()) > 0, "it has saved its step"


@pytest.mark.job("lonely")
def test_a_waiting_plan_says_why_and_is_cancelled_by_deleting_it(
    user: KubectlUser,
) -> None:
    before = user.begin(1)
    scale_out(user, "first")
    user.request("ScalePlan", "second", replicaResourceSpecs={"worker": {"replicas": 3}})
    user.wait("sp/second", ".status.phase", "Pending")
    plan = user.status("scaleout/first")["plan"]
    assert user.status("sp/second")["message"] == f"waits for ScalePlan {plan}"
    user.kubectl("delete", "sp/second", "scaleout/first")
    user.runs_with(1)
    assert user.pods() == before


@pytest.mark.guarantee("job-deleted-midway")
@pytest.mark.thorough
@pytest.mark.job("moving")
def test_a_job_deleted_during_a_migration_leaves_nothing(user: KubectlUser) -> None:
    (old,) = user.begin(1)
    user.request("ScalePlan", "endless", migratePods=[{"name": old}])
    user.until("the replacement, which finds no node", lambda: len(user.pods()) == 2)
    assert old in user.pods(), "the old worker was taken before the new one was ready"
    user.kubectl("delete", "ej/moving")
    user.kubectl("wait", "--for=delete", "sp/endless", "--timeout=60s")
    kinds = "pods,services,secrets,configmaps,serviceaccounts,roles,rolebindings"
    mine = f"{names.LABEL_JOB_NAME}=moving"
    user.until("nothing", lambda: not user.kubectl("get", kinds, "-l", mine, "-o", "name").strip())


@pytest.mark.guarantee("drained-node")
@pytest.mark.thorough
@pytest.mark.embedded_only(SECOND_NODE)
@pytest.mark.job("evicted")
def test_workers_of_a_drained_node_leave_in_an_orderly_way(user: KubectlUser) -> None:
    before = user.begin(2)
    assert {user.get(f"pod/{name}")["spec"]["nodeName"] for name in before} == {LEAVING_NODE}
    steps = user.worlds()[-1][1]
    user.kubectl("cordon", LEAVING_NODE)
    user.until(
        "two others in their place",
        lambda: len(user.pods()) == 2 and not set(before) & set(user.pods()),
    )
    user.runs_with(2)
    mine = f"--pod-selector={names.LABEL_JOB_NAME}=evicted"
    user.kubectl("drain", LEAVING_NODE, mine, "--ignore-daemonsets", "--timeout=60s")
    assert {user.get(f"pod/{name}")["spec"]["nodeName"] for name in user.pods()} == {"process-node"}
    assert user.worlds()[-1][1] > steps, "the training did not continue from its last step"
    assert user.status()["replicaStatuses"]["worker"].get("restarts", 0) == 0, (
        "a lost node is not a failure of a member"
    )
    plans = [plan for plan in user.items("sp") if plan["spec"]["source"] == "Disruption"]
    assert {plan["status"]["phase"] for plan in plans} == {"Succeeded"}
    assert sorted(name for plan in plans for name in plan["status"]["removedPods"]) == sorted(
        before
    )
    assert not [name for plan in plans for name in plan["status"].get("forcedPods", [])]
    user.finish()


@pytest.mark.guarantee("references-in-commands")
@pytest.mark.job("references")
def test_a_program_learns_its_place_by_references(
    user: KubectlUser,
) -> None:
    user.wait("ej/references", ".status.phase", "Succeeded")
    (first, *of_first), (second, *of_second) = (
        (user.folder / rank).read_text().split() for rank in "01"
    )
    assert of_first[:-1] == ["0/2", first, "$(ELASTICJOB_RANK)"]
    assert of_second[:-1] == ["1/2", first, "$(ELASTICJOB_RANK)"]
    assert of_first[-1] == of_second[-1]
    assert sorted(of_first[-1].split(",")) == sorted([first, second])


# --- failures


@pytest.mark.guarantee("first-matching-rule-decides")
@pytest.mark.job("typo")
def test_a_missing_command_fails_the_job_at_once_with_that_message(
    user: KubectlUser,
) -> None:
    user.wait("ej/typo", ".status.phase", "Failed")
    message = user.status()["message"]
    assert "trian.py" in message
    assert "worker" in message
    assert user.status()["replicaStatuses"]["worker"].get("restarts", 0) == 0


@pytest.mark.guarantee("uncounted-failures")
@pytest.mark.job("hungry")
def test_a_worker_out_of_memory_returns_with_more_and_the_job_succeeds(
    user: KubectlUser,
) -> None:
    user.until(
        "a restart",
        lambda: user.status().get("replicaStatuses", {}).get("worker", {}).get("restarts"),
    )
    user.wait("ej/hungry", ".status.workers", "1/1")
    (name,) = user.pods()
    assert (
        user.get(f"pod/{name}")["spec"]["containers"][0]["resources"]["limits"]["memory"] == "256Mi"
    )
    (user.folder / "finish").touch()
    user.wait("ej/hungry", ".status.phase", "Succeeded")


@pytest.mark.guarantee("lowered-memory-is-uncounted")
@pytest.mark.thorough
@pytest.mark.job("lowered")
def test_a_worker_out_of_memory_after_a_lowering_plan_gets_its_templates_memory(
    user: KubectlUser,
) -> None:
    user.wait("ej/lowered", ".status.workers", "1/1")
    less = {"worker": {"resource": {"memory": "100Mi"}}}
    user.create("ScalePlan", "less", source="Auto", replicaResourceSpecs=less)
    (user.folder / "grow").touch()
    user.until("a restart", lambda: user.status().get("uncountedRestarts"))
    user.wait("ej/lowered", ".status.workers", "1/1")
    (name,) = user.pods()
    assert (
        user.get(f"pod/{name}")["spec"]["containers"][0]["resources"]["limits"]["memory"] == "256Mi"
    )
    user.create("ScalePlan", "less-again", source="Auto", replicaResourceSpecs=less)
    assert list(user.pods()) == [name]
    assert (
        user.get(f"pod/{name}")["spec"]["containers"][0]["resources"]["limits"]["memory"] == "256Mi"
    )
    assert user.status()["restarts"] == 0
    (user.folder / "finish").touch()
    user.wait("ej/lowered", ".status.phase", "Succeeded")


@pytest.mark.guarantee("failed-pod-replaced", "first-matching-rule-decides")
@pytest.mark.thorough
@pytest.mark.job("flaky")
def test_a_crashing_worker_is_restarted_and_counted_and_its_failed_pods_stay_readable(
    user: KubectlUser,
) -> None:
    user.until("the second attempt, at once", lambda: (user.folder / "second").exists())
    (user.folder / "go").touch()
    user.until("the failed pod, before the pause is over", lambda: len(failed_pods(user)) == 2)
    user.runs_with(1)
    first, second = sorted(failed_pods(user))
    assert "crash one" in user.kubectl("logs", first), (
        "it stays for its log although it has been replaced"
    )
    assert "crash two" in user.kubectl("logs", second)
    assert user.status()["replicaStatuses"]["worker"]["restarts"] == 2
    user.finish()


def suspend(user: KubectlUser, yes: bool) -> None:
    user.kubectl(
        "patch",
        f"ej/{user.job}",
        "--type=merge",
        "-p",
        json.dumps({"spec": {"runPolicy": {"suspend": yes}}}),
    )


def scale_out(user: KubectlUser, name: str) -> None:
    """Request a worker that fits on no node, and wait until its pod exists."""
    user.request("ScaleOut", name, count=1)
    user.wait(f"scaleout/{name}", ".status.phase", "Scaling")
    user.until("a pod that waits for a node", lambda: len(user.pods()) == 2)


def plan_names(user: KubectlUser) -> set[str]:
    return {plan["metadata"]["name"] for plan in user.items("sp")}


def plans_since(user: KubectlUser, before: set[str]) -> list[Json]:
    """Return the plans created since."""
    return [plan for plan in user.items("sp") if plan["metadata"]["name"] not in before]


def index(pod: str) -> int:
    """Return the index in a pod's name, `<job>-worker-<index>[-<incarnation>]`."""
    return int(pod.split("-worker-")[1].split("-")[0])


def allocated_resources(user: KubectlUser, pod: str) -> Json:
    """Return the resources that the node reports for the training container."""
    resources: Json = user.status(f"pod/{pod}")["containerStatuses"][0]["resources"]
    return resources


def failed_pods(user: KubectlUser) -> list[str]:
    arguments = (
        "get",
        "pods",
        "-l",
        f"{names.LABEL_JOB_NAME}={user.job}",
        "--field-selector=status.phase=Failed",
    )
    return user.kubectl(*arguments, "-o", "jsonpath={.items[*].metadata.name}").split()
