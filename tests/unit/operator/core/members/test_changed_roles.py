"""Tests roles that are added to a running job or removed from it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.limits import MAX_ROLES
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS

from tests.support.job_cluster import end_training, new_cluster, pod_names, set_suspend, status_of
from tests.support.simulator.cluster import JOB, Cluster
from tests.support.thorough import some_of


def role(replicas: int = 1, image: str = "store:1", **more: Any) -> Json:
    container = {"name": "store", "image": image, "command": ["store"]}
    return {
        "replicas": replicas,
        "agent": "None",
        "template": {"spec": {"containers": [container]}},
        **more,
    }


def change_roles(cluster: Cluster, add: Json | None = None, remove: tuple[str, ...] = ()) -> None:
    def edit(spec: Json) -> None:
        for each in remove:
            del spec["replicaSpecs"][each]
        spec["replicaSpecs"].update(add or {})

    cluster.kube.edit(ELASTIC_JOBS, JOB, edit)


async def started(**roles: Json) -> Cluster:
    cluster = new_cluster(replicas=2, framework="custom")
    cluster._body["spec"]["replicaSpecs"] |= roles
    await cluster.start()
    return cluster


def plans(cluster: Cluster) -> dict[str, tuple[str, str]]:
    found = {plan["metadata"]["name"]: plan["status"] for plan in cluster.kube.all(SCALE_PLANS)}
    return {name: (status["phase"], status.get("message", "")) for name, status in found.items()}


def generation(cluster: Cluster) -> int:
    return int(cluster.kube.objects[ELASTIC_JOBS, JOB]["metadata"]["generation"])


def roles_of(cluster: Cluster) -> dict[str, Json]:
    found: dict[str, Json] = status_of(cluster)["replicaStatuses"]
    return found


def uids(cluster: Cluster) -> list[str]:
    return [pod["metadata"]["uid"] for pod in cluster.kube.pods("worker")]


def check_roles(cluster: Cluster) -> None:
    """Check that the job's pods and its status belong to exactly the roles of its spec."""
    spec = cluster.kube.objects[ELASTIC_JOBS, JOB]["spec"]
    status = status_of(cluster)
    assert status["replicaStatuses"].keys() == spec["replicaSpecs"].keys()
    found = {pod["metadata"]["labels"][names.LABEL_ROLE] for pod in cluster.kube.all(PODS)}
    assert found <= spec["replicaSpecs"].keys() | {names.ROLE_MASTER}
    for name, each in spec["replicaSpecs"].items():
        assert len(pod_names(cluster, name)) == each["replicas"], name
    cluster.check_final_state()


async def test_a_role_that_is_added_gets_its_pods_by_a_plan_and_the_others_keep_theirs() -> None:
    cluster = await started()
    before = uids(cluster)
    change_roles(cluster, {"store": role(2)})
    await cluster.settle()
    assert pod_names(cluster, "store") == ["job-store-0", "job-store-1"]
    assert uids(cluster) == before
    phase, message = plans(cluster)[f"job-spec-{generation(cluster)}"]
    assert (phase, message.split(" in ")[0]) == ("Succeeded", "store 0 to 2")
    assert status_of(cluster)["phase"] == "Running"
    check_roles(cluster)


async def test_a_removed_role_loses_its_pods_and_status_and_other_roles_keep_theirs() -> None:
    cluster = await started(store=role(2))
    before = uids(cluster)
    change_roles(cluster, remove=("store",))
    await cluster.settle()
    assert uids(cluster) == before
    phase, message = plans(cluster)[f"job-spec-{generation(cluster)}"]
    assert (phase, message.split(" in ")[0]) == ("Succeeded", "store 2 to 0")
    assert status_of(cluster)["formerRoles"] == {"highestIndex": 1}
    check_roles(cluster)


async def test_pods_of_a_removed_role_are_deleted_with_the_roles_own_time_to_drain() -> None:
    cluster = await started(extra=role(1, agent="Managed", drainSeconds=300))
    (pod,) = cluster.kube.pods("extra")
    assert pod["spec"]["terminationGracePeriodSeconds"] > 300
    change_roles(cluster, remove=("extra",))
    await cluster.run_operator()
    (pod,) = cluster.kube.pods("extra")
    assert "deletionTimestamp" in pod["metadata"], "SIGTERM, at which its agent drains"
    assert pod["metadata"].get("deletionGracePeriodSeconds") != 0
    await cluster.settle()
    check_roles(cluster)


@pytest.mark.guarantee("changed-roles")
async def test_a_role_added_again_starts_after_its_old_pods_are_deleted_with_new_pod_names() -> (
    None
):
    cluster = await started(store=role(1))
    change_roles(cluster, remove=("store",))
    await cluster.run_operator()  # its pod is being deleted and still runs
    change_roles(cluster, {"store": role(1, image="store:2")})
    for _ in range(3):
        await cluster.run_operator()
        (pod,) = cluster.kube.pods("store")
        assert pod["spec"]["containers"][0]["image"] == "store:1", "the former one still runs"
    await cluster.settle()
    (pod,) = cluster.kube.pods("store")
    assert pod["metadata"]["name"] == "job-store-0-1"
    assert pod["spec"]["containers"][0]["image"] == "store:2"
    check_roles(cluster)


async def test_a_role_that_waits_to_be_removed_and_is_added_again_gets_new_pods() -> None:
    cluster = await started(store=role(1))
    await cluster.apply(SCALE_PLANS, "slow", replicaResourceSpecs={"worker": {"replicas": 1}})
    await cluster.run_operator()  # the plan drains a worker
    change_roles(cluster, remove=("store",))
    await cluster.run_operator()
    assert pod_names(cluster, "store") == ["job-store-0"], "it waits for its turn"
    change_roles(cluster, {"store": role(2, image="store:2")})
    await cluster.settle()
    images = {pod["spec"]["containers"][0]["image"] for pod in cluster.kube.pods("store")}
    assert images == {"store:2"}
    check_roles(cluster)


async def test_no_pod_of_a_removed_role_is_replaced_while_its_removal_waits_for_a_plan() -> None:
    cluster = await started(store=role(2))
    await cluster.apply(SCALE_PLANS, "slow", replicaResourceSpecs={"worker": {"replicas": 1}})
    await cluster.run_operator()
    change_roles(cluster, remove=("store",))
    await cluster.run_operator()
    end_training(cluster, "job-store-0", 1)
    cluster.kube.remove(PODS, "job-store-1")
    await cluster.run_operator()
    assert not [
        name for name in pod_names(cluster, "store") if name not in ("job-store-0", "job-store-1")
    ]
    await cluster.settle()
    assert status_of(cluster)["restarts"] == 0
    check_roles(cluster)


@pytest.mark.guarantee("changed-roles")
@pytest.mark.parametrize("replicas", [1, 4])
async def test_a_running_plan_continues_without_a_role_that_is_removed_meanwhile(
    replicas: int,
) -> None:
    cluster = await started(store=role(2, minReplicas=0))
    sizes = {"store": {"replicas": replicas}, "worker": {"replicas": 3}}
    await cluster.apply(SCALE_PLANS, "both", replicaResourceSpecs=sizes)
    await cluster.run_operator()
    assert status_of(cluster)["currentPlan"] == "both"
    change_roles(cluster, remove=("store",))
    await cluster.settle()
    assert plans(cluster)["both"][0] == "Succeeded"
    assert len(pod_names(cluster)) == 3
    check_roles(cluster)


async def test_requests_that_name_a_removed_role_are_refused_while_its_pods_end() -> None:
    cluster = await started(store=role(2, minReplicas=0))
    change_roles(cluster, remove=("store",))
    await cluster.run_operator()
    assert "store" in status_of(cluster)["replicaStatuses"]
    await cluster.apply(SCALE_OUTS, "more", role="store", count=1)
    await cluster.apply(SCALE_INS, "fewer", role="store", count=1)
    await cluster.apply(SCALE_PLANS, "size", replicaResourceSpecs={"store": {"replicas": 3}})
    await cluster.settle()
    for resource, name in ((SCALE_OUTS, "more"), (SCALE_INS, "fewer")):
        status = cluster.kube.objects[resource, name]["status"]
        assert status["phase"] == "ScaleFailed"
        assert status["message"] == "spec.role: 'store' is not a role of the job; it has worker"
    assert plans(cluster)["size"] == (
        "Failed",
        "spec.replicaResourceSpecs.store: 'store' is not a role of the job; it has worker",
    )
    check_roles(cluster)


@pytest.mark.guarantee("changed-roles")
@pytest.mark.parametrize(
    ("added", "error"),
    [
        (
            role(template={}),
            "spec.replicaSpecs.bad.template.spec.containers: must have at least one container",
        ),
        (
            role(template={"spec": {"containers": 3}}),
            "spec.replicaSpecs.bad.template: Expected `array",
        ),
        (
            role(agent="Managed", template={"spec": {"containers": [{"name": "x", "image": "x"}]}}),
            "spec.replicaSpecs.bad.template.spec.containers[0].command: must be set",
        ),
        (
            role(dependsOn=["none"]),
            "spec.replicaSpecs.bad.dependsOn: 'none' is not one of replicaSpecs",
        ),
        (
            role(restartRules=[{"messagePattern": "(", "action": "Restart"}]),
            "spec.replicaSpecs.bad.restartRules[0]",
        ),
        (
            role(
                template={
                    "spec": {"hostNetwork": True, "containers": [{"name": "x", "image": "x"}]}
                }
            ),
            "spec.replicaSpecs.bad.template.spec.hostNetwork: a job that was created without it",
        ),
    ],
)
async def test_a_role_that_could_never_run_gets_no_members_and_the_job_runs_on(
    added: Json, error: str
) -> None:
    cluster = await started()
    before = uids(cluster)
    change_roles(cluster, {"bad": added})
    await cluster.settle()
    phase, message = plans(cluster)[f"job-spec-{generation(cluster)}"]
    assert phase == "Failed"
    assert message.startswith(error), message
    assert (status_of(cluster)["phase"], uids(cluster)) == ("Running", before)
    change_roles(cluster, {"good": role(1)}, remove=("bad",))
    await cluster.settle()
    check_roles(cluster)


async def test_roles_change_while_a_job_is_suspended_and_get_their_pods_when_it_resumes() -> None:
    cluster = await started(store=role(2))
    set_suspend(cluster, True)
    await cluster.settle()
    change_roles(cluster, {"shop": role(2)}, remove=("store",))
    await cluster.settle()
    assert cluster.kube.all(PODS) == []
    set_suspend(cluster, False)
    await cluster.settle()
    check_roles(cluster)


async def test_an_ended_job_keeps_its_status_after_any_change_of_its_spec() -> None:
    cluster = await started(store=role(1))
    for name in pod_names(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    change_roles(cluster, {"shop": role(1)}, remove=("store",))
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Succeeded"
    assert status_of(cluster)["replicaStatuses"].keys() == {"worker", "store"}
    assert {pod["status"]["phase"] for pod in cluster.kube.all(PODS)} == {"Succeeded"}


async def test_the_role_that_kubectl_scales_and_prints_exists() -> None:
    cluster = new_cluster(framework="custom")
    cluster._body["spec"]["replicaSpecs"] = {
        "a": role(1, agent="Managed"),
        "b": role(2, agent="Managed"),
    }
    await cluster.start()
    assert status_of(cluster)["selector"].endswith("=a")
    change_roles(cluster, remove=("a",))
    await cluster.settle()
    assert (status_of(cluster)["selector"][-2:], status_of(cluster)["workers"]) == ("=b", "2/2")


async def test_a_pod_of_a_removed_role_that_appears_late_is_deleted() -> None:
    cluster = await started(store=role(1))
    late = cluster.kube.pods("store")[0]
    change_roles(cluster, remove=("store",))
    await cluster.settle()
    metadata = {key: late["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
    await cluster.create(PODS, {**late, "metadata": {"name": "job-store-7", **metadata}})
    await cluster.settle()
    check_roles(cluster)


@pytest.mark.guarantee("changed-roles")
async def test_roles_without_end_leave_nothing_behind() -> None:
    cluster = await started(r0=role(1))
    for number in range(1, 12):
        change_roles(cluster, {f"r{number}": role(1)}, remove=(f"r{number - 1}",))
        await cluster.settle(turns=200)
    check_roles(cluster)
    assert len(str(status_of(cluster))) < 3000
    assert status_of(cluster)["formerRoles"]["highestIndex"] == 0


@pytest.mark.parametrize(("room", "roles", "rounds"), [(8, 3, 4), (6, 3, 4), (5, 3, 5), (5, 4, 5)])
async def test_roles_that_a_status_has_no_room_for_wait_until_removed_ones_have_gone(
    room: int, roles: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticjob_operator.core.members.changed_roles.MAX_ROLE_STATUSES", room)
    cluster = await started()
    for number in range(rounds):  # no kubelet ends the pods meanwhile
        old = tuple(f"r{number - 1}x{n}" for n in range(roles)) if number else ()
        change_roles(cluster, {f"r{number}x{n}": role(1) for n in range(roles)}, remove=old)
        await cluster.run_operator()
        assert len(roles_of(cluster)) <= room
    await cluster.settle(turns=300)
    check_roles(cluster)


@pytest.mark.thorough
async def test_all_roles_but_one_are_renamed_at_once() -> None:
    cluster = await started(**{f"a{n}": role(1) for n in range(MAX_ROLES - 1)})
    new = {f"b{n}": role(1) for n in range(MAX_ROLES - 1)}
    old = tuple(f"a{n}" for n in range(MAX_ROLES - 1))
    change_roles(cluster, new, remove=old)
    await cluster.settle(turns=300)
    check_roles(cluster)


@pytest.mark.guarantee("changed-roles")
@pytest.mark.parametrize("seed", some_of(range(30), every=3))
async def test_any_history_of_roles_and_deaths_of_the_operator_ends_with_the_pods_of_the_spec(
    seed: int,
) -> None:
    rng = random.Random(seed)
    cluster = await started(a=role(1))
    used: dict[str, str] = {}
    for _ in range(12):
        present = [
            each
            for each in cluster.kube.objects[ELASTIC_JOBS, JOB]["spec"]["replicaSpecs"]
            if each != "worker"
        ]
        absent = [each for each in "abc" if each not in present]
        add = {
            each: role(rng.randint(0, 3), f"store:{rng.random()}", minReplicas=0) for each in absent
        }
        chosen = {each: spec for each, spec in add.items() if rng.random() < 0.5}
        gone = {each for each in present if rng.random() < 0.5}
        change_roles(cluster, chosen, tuple(gone))
        while any(
            not replica.get("removed")
            for each, replica in roles_of(cluster).items()
            if each in gone
        ):
            # The operator must see the removal before the role is added again.
            await cluster.run_operator()
        if rng.random() < 0.4:
            cluster.kube.crash_in = rng.randint(1, 6)
        for _ in range(rng.randint(0, 4)):
            await cluster.run_operator()
            if rng.random() < 0.7:
                cluster.run_pods()
            for pod in cluster.kube.all(PODS):
                assert (
                    used.setdefault(pod["metadata"]["name"], pod["metadata"]["uid"])
                    == pod["metadata"]["uid"]
                )
    cluster.kube.crash_in = None
    await cluster.settle(turns=300)
    check_roles(cluster)
    spec = cluster.kube.objects[ELASTIC_JOBS, JOB]["spec"]["replicaSpecs"]
    for pod in cluster.kube.all(PODS):
        of = pod["metadata"]["labels"][names.LABEL_ROLE]
        if of != names.ROLE_MASTER:
            written = spec[of]["template"]["spec"]["containers"][0]["image"]
            assert pod["spec"]["containers"][0]["image"] == written, (
                "a pod of a former role of this name"
            )
