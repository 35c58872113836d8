"""Tests dl-operator's MXJob and TFJob."""

from __future__ import annotations

from typing import Any

from elasticjob_cli.convert.report import Kind

from tests.support.convert import container_of, errors, lost, role_of, sample, spec_of, told


def mx() -> Any:
    [document] = sample("dl_operator/mxjob.yaml")
    return document


def with_commands(document: Any) -> Any:
    for group in document["spec"]:
        group["template"]["spec"]["containers"][0]["command"] = ["python", "train.py"]
    return document


def test_the_list_of_replica_specs_becomes_a_map_of_roles() -> None:
    spec = spec_of(with_commands(mx()))
    assert spec["framework"] == "mxnet"
    assert {role: written["replicas"] for role, written in spec["replicaSpecs"].items()} == {
        "scheduler": 1, "server": 1, "worker": 1,
    }  # fmt: skip
    assert lost(with_commands(mx())) == []


def test_a_missing_command_is_reported() -> None:
    assert told(mx(), "has no command", Kind.LOST) == 3
    assert container_of(mx(), "worker")["command"] == ["command-of-the-image"]


def test_variables_that_the_agent_sets_are_left_out() -> None:
    document = with_commands(mx())
    document["spec"][2]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "DMLC_ROLE", "value": "worker"},
        {"name": "PS_VERBOSE", "value": "2"},
    ]
    assert container_of(document, "worker")["env"] == [{"name": "PS_VERBOSE", "value": "2"}]


def test_a_job_without_a_scheduler_is_custom() -> None:
    document = with_commands(mx())
    del document["spec"][0]
    assert spec_of(document)["framework"] == "custom"
    assert told(document, "needs a role scheduler", Kind.LOST)


def test_a_tf_job_of_a_fixed_size() -> None:
    [document] = sample("dl_operator/tfjob.yaml")
    assert spec_of(document)["framework"] == "tensorflow"
    worker = role_of(document, "worker")
    assert (worker["replicas"], worker["minReplicas"]) == (2, 2)


def test_servers_of_a_tf_job_restart_with_each_world_also_with_a_chief() -> None:
    [document] = sample("dl_operator/tfjob.yaml")
    assert "onWorldChange" not in role_of(document, "ps"), "without a chief that is the default"
    assert told(document, "let the first worker save", Kind.DIFFERS)
    chief = {"replicas": 1, "replicaType": "chief"}
    document["spec"].append(chief | {"template": document["spec"][0]["template"]})
    assert role_of(document, "ps")["onWorldChange"] == "Restart"
    assert told(document, "let the chief save", Kind.DIFFERS)


def test_two_groups_of_one_type_are_an_error() -> None:
    document = with_commands(mx())
    document["spec"].append(document["spec"][2])
    assert "spec[3].replicaType: WORKER is given twice" in errors(document)[0]
