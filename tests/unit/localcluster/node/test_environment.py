"""A container's environment is what a kubelet would make of the same spec."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
from elasticjob_localcluster.node.container_command import with_folders, with_installed_programs
from elasticjob_localcluster.node.environment import (
    ConfigError,
    EnvironmentInputs,
    command_line,
    environment,
    expand,
    referenced_sources,
    service_variables,
)
from elasticjob_localcluster.node.pod_model import Metadata, Pod
from hypothesis import given
from hypothesis import strategies as st

POD = Pod(
    metadata=Metadata(
        name="pod-1",
        namespace="team",
        uid="u-1",
        labels={"app.io/role": "worker"},
        annotations={"note": "hi"},
    ),
    spec={"serviceAccountName": "trainer"},
)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


def inputs(**more: Any) -> EnvironmentInputs:
    defaults: dict[str, Any] = {
        "pod": POD,
        "pod_ip": "127.1.2.3",
        "node_name": "here",
        "allocatable": {"cpu": "2", "memory": "1Gi"},
    }
    return EnvironmentInputs(**(defaults | more))


def made(
    *env: dict[str, Any], container: dict[str, Any] | None = None, **more: Any
) -> dict[str, str]:
    return environment({"name": "main", "env": list(env)} | (container or {}), inputs(**more))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NONE)", "$(NONE)"),
        ("$A $ $(A", "$A $ $(A"),
        ("$$", "$"),
        ("$()", "$()"),
        ("x$(A)$(A)y", "x11y"),
    ],
)
def test_references_are_replaced_as_the_api_defines(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}.get) == expected


@given(st.text())
def test_a_text_with_every_dollar_doubled_comes_out_as_it_was(text: str) -> None:
    assert expand(text.replace("$", "$$"), lambda name: "never") == text


@given(st.text(st.characters(exclude_characters="$")), st.dictionaries(NAMES, st.text()))
def test_a_text_without_dollars_stays(text: str, values: dict[str, str]) -> None:
    assert expand(text, values.get) == text


@given(st.dictionaries(NAMES, st.text(st.characters(exclude_characters="$")), min_size=1))
def test_a_value_sees_every_variable_before_it_and_none_after(values: dict[str, str]) -> None:
    env = [{"name": name, "value": value} for name, value in values.items()]
    first, *_ = values
    result = made(
        {"name": "early", "value": f"$({first})"}, *env, {"name": "late", "value": f"$({first})"}
    )
    assert result["early"] == f"$({first})"
    assert result["late"] == values[first]


def test_fields_of_the_pod_can_be_named() -> None:
    paths = {
        "metadata.name": "pod-1",
        "metadata.namespace": "team",
        "metadata.uid": "u-1",
        "metadata.labels['app.io/role']": "worker",
        "metadata.annotations['note']": "hi",
        "metadata.labels['absent']": "",
        "spec.nodeName": "here",
        "spec.serviceAccountName": "trainer",
        "status.podIP": "127.1.2.3",
        "status.hostIP": "127.0.0.1",
    }
    env = [
        {"name": f"V{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for n, path in enumerate(paths)
    ]
    assert list(made(*env).values()) == list(paths.values())


def test_an_unknown_field_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"'spec\.shoeSize'"):
        made({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.shoeSize"}}})


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "requests.memory"}, "64000000"),
    ],
)
def test_resources_are_divided_and_rounded_up(reference: dict[str, str], expected: str) -> None:
    container = {"resources": {"requests": {"cpu": "250m", "memory": "64M"}}}
    assert (
        made({"name": "X", "valueFrom": {"resourceFieldRef": reference}}, container=container)["X"]
        == expected
    )


def test_secrets_are_decoded_and_config_maps_taken_as_they_are() -> None:
    sources = {
        ("Secret", "s"): {"data": {"k": base64.b64encode("süß".encode()).decode()}},
        ("ConfigMap", "c"): {"data": {"k": "plain"}},
    }
    container = {
        "envFrom": [{"prefix": "S_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}],
        "env": [{"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    }
    assert referenced_sources(container) == set(sources)
    assert environment({"name": "main"} | container, inputs(sources=sources)) == {
        "S_k": "süß",
        "k": "plain",
        "ONE": "süß",
    }


@pytest.mark.parametrize("source", [None, {"data": {"other": ""}}])
def test_a_missing_object_is_an_error_unless_it_is_optional(source: dict[str, Any] | None) -> None:
    reference = {"name": "s", "key": "k"}
    sources = {("Secret", "s"): source}
    with pytest.raises(ConfigError, match="s"):
        made({"name": "X", "valueFrom": {"secretKeyRef": reference}}, sources=sources)
    optional = {"name": "X", "valueFrom": {"secretKeyRef": reference | {"optional": True}}}
    assert made(optional, sources=sources) == {}


def test_the_containers_own_variables_win_over_services_and_those_over_the_base() -> None:
    result = made(
        {"name": "A", "value": "own"},
        services={"A": "s", "B": "s"},
        base={"A": "b", "B": "b", "C": "b"},
    )
    assert result == {"A": "own", "B": "s", "C": "b"}


def test_services_are_found_under_the_address_of_the_pod_of_their_name() -> None:
    services = [
        {
            "metadata": {"name": "job-master"},
            "spec": {
                "clusterIP": "10.0.0.1",
                "selector": {"a": "b"},
                "ports": [
                    {"name": "grpc-main", "port": 80, "targetPort": 50051},
                    {"name": "web", "port": 8080, "targetPort": "web"},
                ],
            },
        },
        {
            "metadata": {"name": "headless"},
            "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 1}]},
        },
        {
            "metadata": {"name": "outside"},
            "spec": {"clusterIP": "10.0.0.2", "ports": [{"port": 1}]},
        },
    ]
    assert service_variables(services, lambda name: f"address of {name}") == {
        "JOB_MASTER_SERVICE_HOST": "address of job-master",
        "JOB_MASTER_SERVICE_PORT": "50051",
        "JOB_MASTER_SERVICE_PORT_GRPC_MAIN": "50051",
        "JOB_MASTER_SERVICE_PORT_WEB": "8080",
    }


def test_command_and_arguments_are_expanded() -> None:
    assert command_line({"command": ["run", "$(A)"], "args": ["$$(A)", "$(B)"]}, {"A": "1"}) == [
        "run",
        "1",
        "$(A)",
        "$(B)",
    ]


@pytest.mark.guarantee("shared-network-stack")
def test_programs_that_are_copied_into_a_pod_are_those_of_this_machine() -> None:
    copied = "/elasticjob/agent/bin"
    text = f"horovodrun --host-discovery-script {copied}/discover_hosts train"
    agent, *others = with_installed_programs(
        [f"{copied}/elasticjob-agent", "run", "--", "sh", "-c", text]
    )
    installed = Path(sys.executable).parent
    assert agent == str(installed / "elasticjob-agent")
    assert others == [
        "run",
        "--",
        "sh",
        "-c",
        f"horovodrun --host-discovery-script {installed}/discover_hosts train",
    ]
    assert all((installed / name).exists() for name in ("elasticjob-agent", "discover_hosts"))


def test_the_folder_of_a_config_map_is_put_where_the_command_names_its_mount_path() -> None:
    folder = Path("/pods/1")
    given = [
        "python",
        "/s/train.py",
        "--path=/s",
        "sh -c 'cat /s/a'",
        "/s2/x",
        "/data/s/x",
        "a/s/b",
    ]
    assert with_folders(given, {"/s/": folder}) == [
        "python",
        "/pods/1/train.py",
        "--path=/pods/1",
        "sh -c 'cat /pods/1/a'",
        "/s2/x",
        "/data/s/x",
        "a/s/b",
    ]
