"""The small pure parts of the operator, each over all of its input."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.quantity import format_memory, parse_quantity, same_quantity
from elasticjob_api.times import format_time, parse_time
from elasticjob_operator.core.manifests.pods import master_pod, member_pod, with_resources
from elasticjob_operator.core.model.observed import Defaults
from elasticjob_operator.core.model.patches import difference
from elasticjob_operator.core.model.plan import free_indices
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.integers() | st.text(max_size=3), lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=4)
)


@given(st.integers(0, 253_402_300_799))
def test_times_are_those_of_the_calendar(seconds: int) -> None:
    assert format_time(seconds) == f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}".zfill(20)
    assert parse_time(format_time(seconds)) == seconds


@given(st.dictionaries(st.text(max_size=2), JSON, max_size=4), st.dictionaries(st.text(max_size=2), JSON, max_size=4))
def test_a_difference_merged_into_the_old_is_the_new(before: dict[str, Any], after: dict[str, Any]) -> None:
    def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
        result = {key: value for key, value in target.items() if key not in patch}
        for key, value in patch.items():
            if isinstance(value, dict):
                old = target.get(key)
                result[key] = merged(old if isinstance(old, dict) else {}, value)
            elif value is not None:
                result[key] = value
        return result

    assert merged(before, difference(before, after)) == after
    assert difference(after, after) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), (2, "2"), ("4Gi", str(4 * 1024**3)), ("1e3", "1000"), ("1.5k", "1500"), ("100n", "1E-7")],
)
def test_quantities_are_exact(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@given(st.text(alphabet="abcxyz_!", min_size=1, max_size=6))
def test_what_is_no_quantity_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as 500m"):
        parse_quantity(text)


def test_quantities_are_compared_by_number() -> None:
    assert same_quantity("1500m", "1.5")
    assert not same_quantity("1", None)
    assert format_memory(Decimal(2 * 1024**3)) == "2048Mi"


@given(st.frozensets(st.integers(0, 30)), st.integers(0, 20))
def test_new_members_get_the_lowest_free_indices(used: frozenset[int], number: int) -> None:
    found = set(islice(free_indices(used), number))
    assert len(found) == number
    assert not found & used
    assert all(index in found | used for index in range(max(found, default=0)))


def test_a_limit_is_changed_where_there_is_one_and_added_only_where_it_must_be() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    changed = with_resources(resources, {"cpu": "2", "memory": "3Gi"})
    assert changed == {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
    assert with_resources({}, {"cpu": "2"}) == {"requests": {"cpu": "2"}}
    gpu = {"nvidia.com/gpu": 1}
    assert with_resources({}, gpu) == {"requests": gpu, "limits": gpu}, "what cannot be overcommitted needs a limit"
    more = {"memory": "3Gi"}
    by_default = with_resources({}, more, frozenset({"cpu", "memory"}))
    assert by_default == {"requests": more, "limits": more}, "the namespace's default limit may be less than that"


def test_the_template_is_kept_as_written_but_for_reserved_names() -> None:
    mine = {"name": "MINE", "value": "1"}
    train = {
        "name": "train",
        "image": "i:1",
        "command": ["a"],
        "args": ["b"],
        "env": [mine, {"name": "ELASTICJOB_INDEX", "value": "9"}],
    }
    sidecar = {"name": "sidecar", "image": "s:1"}
    template = {
        "metadata": {"labels": {"team": "x"}},
        "spec": {"containers": [train, sidecar], "nodeSelector": {"a": "b"}},
    }
    body = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": {"template": template}}},
    }
    made = member_pod(
        msgspec.convert(body, ElasticJob), "worker", 2, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1")
    )
    container = made["spec"]["containers"][0]
    assert made["spec"]["containers"][1] == sidecar
    assert made["spec"]["nodeSelector"] == {"a": "b"}
    assert made["metadata"]["labels"]["team"] == "x"
    assert container["command"] == ["/elasticjob/agent/bin/elasticjob-agent", "run", "--"]
    assert container["args"] == ["a", "b"]
    variables = [variable["name"] for variable in container["env"]]
    assert len(variables) == len(set(variables))
    assert mine in container["env"]
    assert {"name": "ELASTICJOB_INDEX", "value": "2"} in container["env"]
    assert made["spec"]["initContainers"][0]["image"] == "a:1"


def of_job(spec: dict[str, Any], **more: Any) -> ElasticJob:
    """Return a job with one role, of which the template's pod spec is given."""
    template = {"spec": {"containers": [{"name": "train", "image": "i:1", "command": ["a"]}], **spec}}
    body = {
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"framework": "jax", "replicaSpecs": {"worker": {"template": template}}, **more},
    }
    return msgspec.convert(body, ElasticJob)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({}, False),
        ({"automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "reader"}, None),
        ({"serviceAccountName": "reader", "automountServiceAccountToken": False}, False),
    ],
)
def test_a_member_gets_a_token_only_where_its_template_asks_for_one(asked: dict[str, Any], given: bool | None) -> None:
    made = member_pod(of_job(asked), "worker", 0, 0, resources={}, restarts=0, defaults=Defaults("m:1", "a:1"))
    assert made["spec"].get("automountServiceAccountToken") is given


def test_a_master_passes_the_restricted_pod_security_level_and_its_template_has_the_last_word() -> None:
    made = master_pod(of_job({}), 0, restarts=0, defaults=Defaults("m:1", "a:1"))["spec"]
    assert made["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    (container,) = made["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"name": "TMPDIR", "value": "/dev/shm"} in container["env"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    theirs = of_job({}, master={"template": {"spec": {"securityContext": {"runAsUser": 7, "runAsNonRoot": False}}}})
    made = master_pod(theirs, 0, restarts=0, defaults=Defaults("m:1", "a:1"))["spec"]
    assert made["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 7,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
