"""Tests documents with arbitrary content: an error for each field, or a valid object."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any

import pytest
from elasticjob_api.frameworks import framework_of
from elasticjob_api.yaml_documents import read
from elasticjob_cli.convert.converters import CONVERTERS, convert
from elasticjob_cli.convert.rendering import render
from elasticjob_cli.convert.training_runtime import runtimes_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.convert import OURS, SAMPLES, SCHEMAS, sample
from tests.support.crd_schema import problems

LEAVES = (
    st.none() | st.booleans() | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    | st.sampled_from(["Never", "a" * 300, "1Gi", "torchrun"])
)  # fmt: skip
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc.[]", max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = [document for name in SAMPLES for document in sample(name)]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values of a document except for those of its kind and version."""
    found = []
    if path and path[0] not in ("apiVersion", "kind"):
        found.append(path)
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, below in inner:
        found += places(below, (*path, key))
    return found


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at a place."""
    document = copy.deepcopy(document)
    around = document
    for key in path[:-1]:
        around = around[key]
    around[path[-1]] = value
    return document


def check(document: Any, runtime: Any = None) -> None:
    """Convert a document, and check that there are errors or a valid object."""
    result = convert(document, 1, runtimes=runtimes_of([runtime]))
    if result.object is None:
        assert [note for note in result.notes if note.kind == "error"]
        return
    assert read(render(result)) == [result.object]
    if result.object["apiVersion"] != OURS:
        return
    written = copy.deepcopy(result.object["spec"])
    for role in written.get("replicaSpecs", {}).values():
        role["template"] = {}  # the API server rejects other invalid content
        for claim in role.get("volumeClaimTemplates", ()):
            claim["spec"] = {}
    if "master" in written:
        written["master"] = {}
    found = problems(written, SCHEMAS[result.object["kind"]]["properties"]["spec"])
    assert not found, found
    if "replicaSpecs" in written:
        _check_rules(written)


def _check_rules(spec: Any) -> None:
    roles = spec["replicaSpecs"]
    for role in roles.values():
        size = role.get("replicas", 1)
        assert role.get("minReplicas", 1) <= size <= role.get("maxReplicas", size)
    managed = [role for role, written in roles.items() if written.get("agent") != "None"]
    framework = framework_of(spec["framework"], roles)
    assert not framework.roles or set(managed) <= set(framework.roles)
    assert all(set(group) & set(managed) for group in framework.required)
    assert all(roles[role]["replicas"] <= 1 for role in framework.single_roles if role in managed)
    assert spec.get("autoscaling", {}).get("role", "worker") in roles or "autoscaling" not in spec


@pytest.mark.guarantee("converted-jobs-are-accepted")
@given(
    st.sampled_from(DOCUMENTS),
    st.randoms(use_true_random=False),
    st.lists(ANYTHING, min_size=1, max_size=4),
)
@settings(max_examples=100)
def test_any_value_anywhere_in_a_sample_is_an_error_or_within_bounds(
    document: Any, chance: random.Random, values: list[Any]
) -> None:
    for value in values:
        document = changed(document, chance.choice(places(document)), value)
    check(document)


@given(
    st.sampled_from([0, 1]),
    st.randoms(use_true_random=False),
    st.lists(ANYTHING, min_size=1, max_size=4),
)
@settings(max_examples=100)
def test_any_value_anywhere_in_a_job_or_its_runtime_is_an_error_or_within_bounds(
    which: int, chance: random.Random, values: list[Any]
) -> None:
    documents = sample("kubeflow/train-job-with-runtime.yaml")
    for value in values:
        place = chance.choice(places(documents[which]))
        documents[which] = changed(documents[which], place, value)
    check(*documents)


@given(
    st.sampled_from(sorted(CONVERTERS)),
    st.dictionaries(st.sampled_from(["metadata", "spec", "status", "x"]), ANYTHING),
)
def test_any_document_of_any_kind_is_an_error_or_within_bounds(
    kind: tuple[str, str], fields: dict[str, Any]
) -> None:
    check({"apiVersion": kind[0], "kind": kind[1]} | fields)


@given(ANYTHING)
def test_any_document_is_an_error_or_within_bounds(document: Any) -> None:
    check(document)


@pytest.mark.thorough
def test_each_value_of_each_sample_may_be_missing_or_of_another_type() -> None:
    for document in DOCUMENTS:
        for path in places(document):
            for value in (None, 7, -1, "text", True, [], {}, [None], {"a": None}):
                check(changed(document, path, value))


def test_long_texts_take_no_time() -> None:
    [servers] = sample("framework_controller/parameter-servers.yaml")
    [launched] = sample("et_operator/training-job.yaml")
    plan = sample("dlrover/parameter-servers.yaml")[1]
    container = ("template", "spec", "containers", 0, "command")
    for part in (
        "a",
        "-edljob-a",
        "FB_A_PORT=1 ",
        ". /x",
        "{{FC_",
        "/etc/edl/",
        "--min-np ",
        "-worker-1",
    ):
        text = part * (100_000 // len(part))
        command = ["sh", "-c", text]
        for document, path, value in (
            (servers, ("spec", "taskRoles", 0, "task", "pod", *container[1:]), command),
            (launched, ("spec", "etReplicaSpecs", "launcher", *container), command),
            (plan, ("spec", "migratePods", 0, "name"), text),
        ):
            convert(changed(document, path, value), 1)
