"""The groups and sets of a job's pods are those of its present pods, after any changes."""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.limits import MAX_INDEX
from elasticjob_operator.core.model.identity import JobIdentity
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods, RolePods
from elasticjob_operator.pod_store import PodStore
from hypothesis import given
from hypothesis import strategies as st

JOB = JobIdentity("ns", "job", "job-uid")
OWNER = {
    "apiVersion": names.API_VERSION,
    "kind": "ElasticJob",
    "name": JOB.name,
    "uid": JOB.uid,
    "controller": True,
}
NAMES = ("job-master", "job-worker-0", "job-worker-0-1", "job-worker-3", "job-ps-3-2")
STRAY = f"job-worker-{MAX_INDEX + 1}"
ENDED = {"name": "train", "state": {"terminated": {"exitCode": 1}}}
STATUSES: tuple[dict[str, Any], ...] = (
    {"phase": "Pending"},
    {"phase": "Running"},
    {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"phase": "Running", "containerStatuses": [ENDED]},
    {"phase": "Failed"},
    {"phase": "Succeeded"},
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    metadata: dict[str, Any] = {
        "name": draw(st.sampled_from((*NAMES, STRAY))),
        "namespace": "ns",
        "uid": draw(st.sampled_from("abcdef")),
        "ownerReferences": [OWNER],
        "annotations": draw(st.sampled_from(({}, {names.ANNOTATION_OPERATOR: "ns/lease"}))),
    }
    if draw(st.booleans()):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {
        "containers": [{"name": "train"}],
        "nodeName": draw(st.sampled_from(("", "n1", "n2"))),
    }
    status = draw(st.sampled_from(STATUSES))
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def facts(pods: Pods) -> Any:
    """Return everything that decisions read of pods, in an order that no history changes."""
    return (
        sorted(map(key, pods)),
        {role: role_facts(each) for role, each in pods.roles.items()},
        {name: sorted(map(key, each)) for name, each in pods.by_name.items()},
        {node: sorted(each) for node, each in pods.by_node.items()},
        sorted(pods.disrupted),
    )


def role_facts(role: RolePods) -> Any:
    return (
        {index: sorted(map(key, each)) for index, each in role.by_index.items()},
        [list(each) for each in (role.present, role.live, role.ready, role.shared)],
        [sorted(each) for each in (role.strays, role.ending, role.pending, role.later)],
        (role.active_count, role.ready_count, role.live_count),
        (role.highest_index, role.incarnations),
    )


def key(pod: Pod) -> tuple[str, bytes]:
    return pod.metadata.uid, msgspec.json.encode(pod)


@given(st.lists(st.tuples(pods(), st.booleans()), max_size=30))
def test_what_the_store_keeps_of_a_jobs_pods_is_what_its_present_pods_say(
    changes: list[tuple[Pod, bool]],
) -> None:
    store = PodStore()
    present: dict[str, Pod] = {}
    for pod, is_deleted in changes:
        uid = pod.metadata.uid
        before = present.get(uid)
        if before is not None and before.name != pod.name:
            continue  # no pod changes its name
        if is_deleted:
            store.update(pod, None)
            present.pop(uid, None)
        else:
            store.update(before, pod)
            present[uid] = pod
        restored = PodStore()
        for each in present.values():
            restored.update(None, each)
        assert facts(store.of(JOB)) == facts(restored.of(JOB))
        assert facts(store.of(JOB)) == facts(Pods(store.of(JOB)))
        assert store.tampered(JOB).keys() == present.keys(), "no pod has the labels of its name"
        assert {
            each for by_uid in store.by_operator(JOB).values() for each in by_uid
        } == present.keys()


@given(st.lists(pods(), max_size=8, unique_by=lambda pod: pod.metadata.uid), st.data())
def test_pods_set_apart_are_in_no_group_and_the_others_in_all(
    every: list[Pod], data: st.DataObject
) -> None:
    store = PodStore()
    for pod in every:
        store.update(None, pod)
    kept = store.of(JOB)
    before = facts(kept)
    uids = data.draw(st.sets(st.sampled_from("abcdef")))
    rest = kept.without(pod for pod in kept if pod.metadata.uid in uids)
    assert facts(rest) == facts(Pods(pod for pod in kept if pod.metadata.uid not in uids))
    assert facts(kept) == before
