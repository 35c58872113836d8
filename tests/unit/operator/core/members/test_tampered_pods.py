"""Tests that a pod with edited labels or owner is replaced.

A member never has two live pods, even if the edit happened while no operator ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.pod_identity import MemberIdentity, member_of_name
from elasticjob_kube.resources import PODS, SCALE_PLANS
from elasticjob_operator.core.model.identity import JobIdentity
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.store import Store
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.cluster import JOB, Operator
from tests.support.simulator.fake_kube import copied
from tests.support.simulator.watched_cluster import WatchedCluster

Edit = Callable[[Json], None]


class ByName(WatchedCluster):
    """A cluster that counts live pods by member as their names say, since labels can be edited."""

    def check(self) -> None:
        live = Counter(
            (member.role, member.index)
            for pod in self.kube.all(PODS)
            if pod["status"]["phase"] in ("Pending", "Running")
            and (member := member_of_name(JOB, pod["metadata"]["name"])) is not None
        )
        assert max(live.values(), default=0) <= 1, f"two live pods: {live}"

    def edit(self, name: str, edit: Edit) -> None:
        self.kube.edit_metadata(PODS, name, edit)

    def running(self) -> list[str]:
        return sorted(
            p["metadata"]["name"] for p in self.kube.all(PODS) if p["status"]["phase"] == "Running"
        )


def without_label(label: str) -> Edit:
    return lambda metadata: metadata["labels"].pop(label, None)


def with_label(label: str, value: str) -> Edit:
    return lambda metadata: metadata["labels"].update({label: value})


def without_owner(metadata: Json) -> None:
    metadata.pop("ownerReferences")


def with_other_owner(metadata: Json) -> None:
    metadata["ownerReferences"][0] |= {"name": "other", "uid": "other-uid"}


def without_anything(metadata: Json) -> None:
    without_owner(metadata)
    metadata["labels"] = {}
    metadata["annotations"] = {}


EDITS: dict[str, Edit] = {
    "job UID removed": without_label(names.LABEL_JOB_UID),
    "job UID changed": with_label(names.LABEL_JOB_UID, "another"),
    "job name changed": with_label(names.LABEL_JOB_NAME, "another"),
    "index changed to that of another": with_label(names.LABEL_INDEX, "1"),
    "index removed": without_label(names.LABEL_INDEX),
    "index odd": with_label(names.LABEL_INDEX, "9" * 5000),
    "role changed to master": with_label(names.LABEL_ROLE, "master"),
    "role changed": with_label(names.LABEL_ROLE, "evaluator"),
    "role removed": without_label(names.LABEL_ROLE),
    "incarnation changed": with_label(names.LABEL_INCARNATION, "7"),
    "owner removed": without_owner,
    "owner changed": with_other_owner,
    "everything removed": without_anything,
}


EDITED = [
    (what, pod)
    for what in EDITS
    for pod in ("job-worker-0", "job-master")
    if "worker" in pod or not {"index", "master"} & {*what.split()}
]
"""A master has no index."""


@pytest.mark.guarantee("edited-pod-labels")
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "while no operator runs"])
@pytest.mark.parametrize(("what", "pod"), EDITED)
async def test_a_pod_whose_labels_or_owner_are_edited_is_replaced_after_its_deletion(
    what: str, pod: str, seen: bool
) -> None:
    cluster = ByName()
    await cluster.start()
    cluster.edit(pod, EDITS[what])
    if not seen:
        cluster.operator = Operator(cluster.kube)
    await cluster.settle()
    cluster.check_final_state()
    assert pod not in cluster.running()
    assert f"{pod}-1" in cluster.running()
    assert len(cluster.running()) == 3
    [event] = [event for event in await cluster.events() if event.startswith("PodTampered")]
    assert f"{pod} is deleted, since it" in event
    assert cluster.job().status.replica_statuses["worker"].restarts == 0


@pytest.mark.parametrize("what", [what for what in EDITS if what != "owner changed"])
async def test_a_pod_without_an_agent_which_has_no_environment_is_known_by_its_owner_or_host_name(
    what: str,
) -> None:
    cluster = ByName(framework="custom", worker={"agent": "None"})
    await cluster.start()
    cluster.edit("job-worker-0", EDITS[what])
    await cluster.settle()
    cluster.check_final_state()
    assert cluster.running() == ["job-master", "job-worker-0-1", "job-worker-1"]


@pytest.mark.guarantee("edited-pod-labels")
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "while no operator runs"])
async def test_until_an_edited_pod_is_deleted_its_member_gets_no_other(seen: bool) -> None:
    cluster = ByName()
    await cluster.start()
    cluster.edit("job-worker-0", without_anything)
    if not seen:
        cluster.operator = Operator(cluster.kube)
    for _ in range(10):
        await cluster.run_operator()
        pod = cluster.kube.objects[PODS, "job-worker-0"]
        assert "deletionTimestamp" in pod["metadata"]
        assert cluster.running() == ["job-master", "job-worker-0", "job-worker-1"]
    await cluster.settle()
    assert cluster.running() == ["job-master", "job-worker-0-1", "job-worker-1"]


async def test_a_label_that_comes_back_ends_it_as_if_nothing_had_been() -> None:
    cluster = ByName()
    await cluster.start()
    label = cluster.kube.objects[PODS, "job-worker-0"]["metadata"]["labels"][names.LABEL_JOB_UID]
    cluster.edit("job-worker-0", without_label(names.LABEL_JOB_UID))
    await cluster.operator.watch()
    cluster.edit("job-worker-0", with_label(names.LABEL_JOB_UID, label))
    await cluster.settle()
    assert cluster.running() == ["job-master", "job-worker-0", "job-worker-1"]


@pytest.mark.guarantee("edited-pod-labels")
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "while no operator runs"])
@pytest.mark.parametrize("end", ["scaled in", "suspended", "finished"])
async def test_an_edited_pod_of_a_member_that_is_not_needed_any_more_is_no_orphan(
    end: str, seen: bool
) -> None:
    cluster = ByName()
    await cluster.start()
    cluster.edit("job-worker-1", without_anything)
    if end == "suspended":
        cluster.edit_policy(suspend=True)
    elif end == "scaled in":
        await cluster.apply(SCALE_PLANS, "less", replicaResourceSpecs={"worker": {"replicas": 1}})
    else:
        cluster.end("job-worker-0", 210)
    if not seen:
        cluster.operator = Operator(cluster.kube)
    await cluster.settle()
    assert [name for name in cluster.running() if name.startswith("job-worker-1")] == []


@pytest.mark.guarantee("edited-pod-labels")
async def test_a_new_operator_knows_a_members_last_pod_name_after_any_number_of_restarts() -> None:
    cluster = ByName()
    await cluster.start()
    for name in ("job-worker-0", "job-worker-0-1", "job-worker-1"):
        cluster.kube.remove(PODS, name)
        await cluster.settle()
    assert cluster.running() == ["job-master", "job-worker-0-2", "job-worker-1-3"]
    for name in ("job-worker-0-2", "job-worker-1-3"):
        cluster.edit(name, without_anything)
    cluster.operator = Operator(cluster.kube)
    await cluster.settle()
    assert cluster.running() == ["job-master", "job-worker-0-4", "job-worker-1-5"]


async def test_a_pod_of_another_owner_with_a_members_name_is_not_touched() -> None:
    cluster = ByName()
    await cluster.start()
    labels = copied(cluster.kube.objects[PODS, "job-worker-0"])["metadata"]["labels"]
    cluster.kube.remove(PODS, "job-worker-0")
    foreign = {
        "metadata": {"name": "job-worker-0", "labels": labels},
        "spec": {"containers": [{"name": "other"}]},
    }
    cluster.check = lambda: None  # type: ignore[method-assign]
    cluster.kube.after_write = cluster.check
    await cluster.create(PODS, foreign)
    await cluster.settle()
    assert "deletionTimestamp" not in cluster.kube.objects[PODS, "job-worker-0"]["metadata"]
    assert "job-worker-0-1" in cluster.running()


def pod(name: str = "job-worker-0", *, namespace: str = "ns", **owner: Any) -> Pod:
    reference = {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "name": "job",
        "uid": "job-uid",
        "controller": True,
    }
    labels = {
        names.LABEL_JOB_NAME: "job",
        names.LABEL_JOB_UID: "job-uid",
        names.LABEL_ROLE: "worker",
        names.LABEL_INDEX: "0",
        names.LABEL_INCARNATION: "0",
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{name}",
        "resourceVersion": "1",
    }
    return msgspec.convert(
        {"metadata": {**metadata, "labels": labels, "ownerReferences": [reference | owner]}}, Pod
    )


@pytest.mark.guarantee("pod-with-a-foreign-owner")
@pytest.mark.parametrize(
    ("observed", "belongs"),
    [
        (pod(), True),
        (pod(namespace="other"), False),
        (pod(apiVersion="elastic.example/v1alpha1"), False),
        (pod(kind="ScaleOut"), False),
        (pod(name="another"), False),
        (pod(controller=False), False),
        (pod(uid="old"), False),
        (pod("their-worker-0"), False),
    ],
)
def test_a_pod_is_a_members_by_namespace_owner_and_name_together(
    observed: Pod, belongs: bool
) -> None:
    store = Store()
    store.update_pod(None, observed)
    assert [each.name for each in store.pods.of(JobIdentity("ns", "job", "job-uid"))] == [
        "job-worker-0"
    ] * belongs


@given(
    job=st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True),
    role=st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True).filter(
        lambda role: role != "master" and not role.rpartition("-")[2].isdecimal()
    ),
    index=st.integers(0, 100_000),
    incarnation=st.integers(0, 10**9),
)
def test_the_name_of_a_pod_says_which_member_it_is(
    job: str, role: str, index: int, incarnation: int
) -> None:
    name = names.member_pod(job, role, index, incarnation)
    assert member_of_name(job, name) == MemberIdentity(role, index, incarnation)
    assert member_of_name(job, names.master_pod(job, incarnation)) == MemberIdentity(
        "master", -1, incarnation
    )
    assert member_of_name(job, job) is None
