"""Paths of objects: a name has the path of this object, or none."""

from __future__ import annotations

import pytest
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ELASTIC_JOBS, PODS


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "job/status", "nope%0a", "%2e%2e"])
def test_a_name_that_no_object_can_have_has_no_path(
    name: str,
) -> None:
    with pytest.raises(Refused, match="is not a name"):
        ELASTIC_JOBS.path("ns", name)


def test_a_name_can_neither_start_a_query_nor_be_truncated() -> None:
    assert PODS.path("ns", "a?x=1").endswith("/pods/a%3Fx%3D1")
    assert PODS.path("ns", "a#b").endswith("/pods/a%23b")
    assert PODS.path("ns", "a\nb").endswith("/pods/a%0Ab")


def test_a_namespace_cannot_change_the_path() -> None:
    with pytest.raises(Refused, match="is not a name"):
        PODS.path("../../nodes", "a")


def test_paths_are_those_of_the_api() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns", "a", "log") == "/api/v1/namespaces/ns/pods/a/log"
    assert (
        ELASTIC_JOBS.path("ns", "a") == "/apis/elasticjob.dev/v1alpha1/namespaces/ns/elasticjobs/a"
    )
