"""Tests DLRover's ElasticJob and ScalePlan."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_cli.convert.report import Kind

from tests.support.convert import (
    container_of,
    converted,
    errors,
    lost,
    role_of,
    sample,
    spec_of,
    told,
)

MNIST = "dlrover/torch-mnist.yaml"
NANOGPT = "dlrover/nanogpt.yaml"
SERVERS = "dlrover/parameter-servers.yaml"


def servers() -> Any:
    return sample(SERVERS)[0]


def plan(**spec: Any) -> Any:
    document = sample(SERVERS)[1]
    document["spec"] = {"ownerJob": "elasticjob-sample"} | spec
    return document


def test_dlrover_run_becomes_torchrun_with_the_agents_world() -> None:
    [document] = sample(MNIST)
    spec = spec_of(document)
    assert spec["framework"] == "pytorch"
    worker = spec["replicaSpecs"]["worker"]
    command = worker["template"]["spec"]["containers"][0]["command"]
    assert command[:2] == ["/bin/bash", "-c"]
    assert " ".join(command[2].split()) == (
        "torchrun examples/pytorch/mnist/cnn_train.py --num_epochs 2 "
        "--training_data /data/mnist_png/training/"
    )
    limits = (worker["processRestartLimit"], worker["restartLimit"])
    assert (worker["slotsPerReplica"], limits) == (2, (3, 3))
    assert spec["health"] == {"nodeCheck": {"enabled": True}}
    assert lost(document) == []


def launched(options: str) -> Any:
    """Return the job whose five workers run `dlrover-run` with these options."""
    [document] = sample(MNIST)
    worker = document["spec"]["replicaSpecs"]["worker"]
    worker["replicas"] = 5
    container = worker["template"]["spec"]["containers"][0]
    container["command"] = ["dlrover-run", *options.split(), "train.py"]
    container.pop("args", None)
    return document


@pytest.mark.parametrize(
    ("nodes", "bounds"),
    [("3:$NODE_NUM", (3, 5)), ("5:$(NODE_NUM)", (5, 5)), ("2:8", (2, 8)), ("$NODE_NUM", (1, None))],
)
def test_the_lower_bound_of_nodes_is_that_of_the_command(nodes: str, bounds: Any) -> None:
    document = launched(f"--nnodes={nodes}")
    worker = role_of(document, "worker")
    assert (worker["minReplicas"], worker.get("maxReplicas")) == bounds
    assert bool(told(document, "no lower bound")) == (
        "3:" not in nodes and "5:" not in nodes and "2:" not in nodes
    )


@pytest.mark.parametrize(("level", "checked"), [("0", False), ("1", True), ("2", True)])
def test_a_precheck_is_the_check_of_each_node(level: str, checked: bool) -> None:
    spec = spec_of(launched(f"--precheck {level}"))
    assert spec.get("health", {}).get("nodeCheck", {}).get("enabled", False) == checked


def test_options_that_dlrover_alone_has_are_lost_and_the_script_stays() -> None:
    document = launched("--numa-affinity --relaunch_on_worker_failure 2 --nnodes 5")
    assert container_of(document, "worker")["command"] == ["torchrun", "train.py"]
    assert len(lost(document)) == 2


def test_the_number_of_nodes_in_a_command_is_that_of_the_world() -> None:
    [document] = sample(NANOGPT)
    container = container_of(document, "worker")
    assert "$((WORKER_NUM * 1))" in container["command"][2]
    assert container["env"] == [{"name": "WORKER_NUM", "value": "$(PET_NNODES)"}]


def test_the_strategy_becomes_the_framework_and_the_optimizer_the_auto_scaler() -> None:
    spec = spec_of(servers())
    assert spec["framework"] == "tensorflow"
    limits = {"cpu": "6", "memory": "8192Mi"}
    assert spec["autoscaling"] == {"enabled": True, "resourceLimits": limits}
    roles = spec["replicaSpecs"]
    assert (roles["ps"]["autoScale"], roles["worker"]["autoScale"]) == (False, True)
    document = servers()
    document["spec"]["optimizeMode"] = "manual"
    assert "enabled" not in spec_of(document)["autoscaling"]
    document["spec"]["distributionStrategy"] = "CustomStrategy"
    assert spec_of(document)["framework"] == "custom"


def test_servers_restart_with_each_world_also_with_a_chief() -> None:
    document = servers()
    assert "onWorldChange" not in role_of(document, "ps"), "without a chief that is the default"
    document["spec"]["replicaSpecs"]["chief"] = {
        "template": document["spec"]["replicaSpecs"]["ps"]["template"]
    }
    assert role_of(document, "ps")["onWorldChange"] == "Restart"


def test_resources_of_one_member_take_precedence_over_those_for_all() -> None:
    document = sample(SERVERS)[1]
    spec = spec_of(document)
    assert spec["replicaResourceSpecs"]["ps"] == {"replicas": 1}, "all of its members are migrated"
    assert spec["migratePods"] == [
        {"role": "ps", "index": 0, "resource": {"cpu": "2", "memory": "512Mi"}}
    ]
    amounts = {"cpu": "0.5", "memory": "256Mi"}
    assert spec["replicaResourceSpecs"]["worker"] == {"replicas": 2, "resource": amounts}
    assert spec["source"] == "Manual"
    assert lost(document) == []
    document["spec"]["replicaResourceSpecs"]["ps"]["replicas"] = 2
    assert len(lost(document)) == 2
    assert "cpu 0.5 is left out, as a member in migratePods gets 2" in lost(document)[0]


def test_sizes_that_dlrovers_master_would_choose_are_invented() -> None:
    document = servers()
    assert role_of(document, "worker")["replicas"] == 1
    assert role_of(document, "ps")["replicas"] == 1
    assert told(document, "where DLRover's master chooses") == 2


def test_dlrovers_master_is_not_a_role_and_only_its_placement_is_kept() -> None:
    document = servers()
    document["spec"]["replicaSpecs"]["dlrover-master"]["template"]["spec"]["nodeSelector"] = {
        "pool": "cpu"
    }
    spec = spec_of(document)
    assert set(spec["replicaSpecs"]) == {"ps", "worker"}
    assert spec["master"] == {"template": {"spec": {"nodeSelector": {"pool": "cpu"}}}}


def test_nothing_of_dlrovers_master_is_left_out_in_silence() -> None:
    document = servers()
    document["metadata"]["annotations"] = {"pending_timeout": "900", "team": "vision"}
    master = document["spec"]["replicaSpecs"]["dlrover-master"]
    master["restartCount"] = 2
    pod = master["template"]["spec"]
    pod |= {"priorityClassName": "high", "serviceAccountName": "dlrover"}
    pod["containers"][0]["env"] = [{"name": "A", "value": "b"}]
    worker = document["spec"]["replicaSpecs"]["worker"]
    worker["restartPolicy"] = "Always"
    assert spec_of(document)["master"]["template"]["spec"]["priorityClassName"] == "high"
    path = "spec.replicaSpecs.dlrover-master"
    assert fields_of(document, Kind.LOST) >= {
        "metadata.annotations.pending_timeout",
        f"{path}.restartCount",
        f"{path}.template.spec.serviceAccountName",
        f"{path}.template.spec.containers[0].env",
    }
    assert "spec.replicaSpecs.worker.restartPolicy" in fields_of(document, Kind.DIFFERS)


def fields_of(document: Any, kind: Kind) -> set[str]:
    """Return the fields that have a note of this kind."""
    return {note.field for note in converted(document).notes if note.kind is kind}


def test_variables_of_the_job_are_written_into_each_container() -> None:
    document = servers()
    document["spec"]["envs"] = {
        "A": "1",
        "B": {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    }
    worker = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    worker["env"] = [{"name": "A", "value": "own"}]
    assert container_of(document, "ps")["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    assert [each["name"] for each in container_of(document, "worker")["env"]] == ["B", "A"]
    assert container_of(document, "worker")["env"][1] == {"name": "A", "value": "own"}


def test_fields_that_need_dlrovers_master_or_service_are_lost() -> None:
    document = servers()
    document["spec"]["brainService"] = "brain:5000"
    document["spec"]["resourceLimits"] |= {"npu": "4", "gpu": 8, "rdma/hca": "2"}
    worker = document["spec"]["replicaSpecs"]["worker"]
    command = ["python", "-m", "dlrover.trainer.entry.local_entry"]
    worker["template"]["spec"]["containers"][0]["command"] = command
    text = "\n".join(lost(document))
    limits = spec_of(document)["autoscaling"]["resourceLimits"]
    assert limits.keys() == {"cpu", "memory", "nvidia.com/gpu", "rdma/hca"}
    for field in ("brainService", "npu", "DLRover's master"):
        assert field in text


@pytest.mark.parametrize(
    ("priority", "name"), [("high", "high"), ("low", "low"), ("1.0", "high"), (1, "high")]
)
def test_the_priority_of_a_role_is_the_priority_class_of_its_pods(priority: Any, name: str) -> None:
    document = servers()
    document["spec"]["replicaSpecs"]["ps"]["priority"] = priority
    assert role_of(document, "ps")["template"]["spec"]["priorityClassName"] == name
    assert "priorityClassName" not in role_of(document, "worker")["template"]["spec"]
    assert lost(document) == []
    assert told(document, "which the cluster must have")


@pytest.mark.parametrize("part", ["0.5", 0.25, ".5"])
def test_the_priority_of_some_members_is_lost_and_the_templates_stays(part: Any) -> None:
    document = servers()
    document["spec"]["replicaSpecs"]["ps"]["priority"] = part
    document["spec"]["replicaSpecs"]["ps"]["template"]["spec"]["priorityClassName"] = "mine"
    assert role_of(document, "ps")["template"]["spec"]["priorityClassName"] == "mine"
    assert told(document, f"{part} of the members have priority class high", Kind.LOST)


@pytest.mark.parametrize("wrong", ["urgent", "0", "1.5", "-0.5", "1e3", True, ["high"]])
def test_an_unknown_priority_is_an_error(wrong: Any) -> None:
    document = servers()
    document["spec"]["replicaSpecs"]["ps"]["priority"] = wrong
    assert "ps.priority: is" in errors(document)[0]


def test_hang_detection_becomes_stall_detection() -> None:
    [document] = sample(MNIST)
    document["spec"]["replicaSpecs"]["worker"]["restartTimeout"] = 600
    health = {"onStall": "Restart", "stallSeconds": 600, "nodeCheck": {"enabled": True}}
    assert spec_of(document)["health"] == health
    assert lost(document) == []
    document["spec"]["replicaSpecs"]["worker"]["restartTimeout"] = 100_000
    assert spec_of(document)["health"]["stallSeconds"] == 86_400
    document = servers()
    document["spec"]["replicaSpecs"]["worker"]["restartTimeout"] = 0
    document["spec"]["replicaSpecs"]["ps"]["restartTimeout"] = 600
    assert "health" not in spec_of(document)
    assert told(document, "only the role worker has it")


def test_shards_are_leased_without_being_enabled() -> None:
    document = servers()
    before = len(converted(document).notes)
    document["spec"]["enableDynamicSharding"] = False
    assert len(converted(document).notes) == before
    document["spec"]["enableDynamicSharding"] = True
    assert lost(document) == []
    assert told(document, "elasticjob.shards")


def test_roles_that_the_framework_does_not_know_make_it_custom() -> None:
    document = servers()
    document["spec"]["distributionStrategy"] = "AllreduceStrategy"
    assert spec_of(document)["framework"] == "custom"
    assert told(document, "no role ps", Kind.LOST)


def test_a_plans_pod_is_identified_by_its_rank_and_not_by_its_name() -> None:
    pod = {"name": "x-edljob-worker-7", "id": 7, "type": "worker", "rankIndex": 2}
    pod["service"] = "x-worker-2:3333"
    document = plan(
        createPods=[pod | {"resource": {"cpu": 1, "npu": 2}}],
        removePods=[pod, "x-edljob-ps-1"],
        psHosts=["a:1"],
    )
    spec = spec_of(document)
    assert spec["createPods"] == [{"role": "worker", "index": 2, "resource": {"cpu": 1}}]
    assert spec["removePods"] == [{"role": "worker", "index": 2}, {"role": "ps", "index": 1}]
    text = "\n".join(lost(document))
    assert "npu" in text
    assert "psHosts: 'a:1' is not a parameter server of the job" in text


def test_a_plan_keeps_extended_resources_in_whole_numbers() -> None:
    asked = {"cpu": 1, "gpu": 2, "amd.com/gpu": "1", "huawei.com/Ascend910": 8}
    kept = {"cpu": 1, "nvidia.com/gpu": 2, "amd.com/gpu": "1", "huawei.com/Ascend910": 8}
    document = plan(
        replicaResourceSpecs={"worker": {"resource": asked}},
        createPods=[{"resource": {"rdma/hca": 1}}],
    )
    spec = spec_of(document)
    assert spec["replicaResourceSpecs"]["worker"]["resource"] == kept
    assert spec["createPods"] == [{"role": "worker", "resource": {"rdma/hca": 1}}]
    assert lost(document) == []
    for bad, error in (
        ({"rdma/hca": "500m"}, "resource.rdma/hca: 500m must be a whole number"),
        ({"gpu": 1, "nvidia.com/gpu": 1}, "resource.nvidia.com/gpu: nvidia.com/gpu is given twice"),
    ):
        assert error in errors(plan(createPods=[{"resource": bad}]))[0]


def test_members_know_the_jobs_own_servers_and_services() -> None:
    job = "elasticjob-sample"
    hosts = [f"{job}-edljob-ps-0.default.svc:2222", f"{job}-ps-2:2222", f"{job}-edljob-ps-1"]
    pod = {"type": "ps", "id": 2, "service": f"{job}-edljob-ps-2:2222"}
    document = plan(
        psHosts=hosts,
        createPods=[pod],
        removePods=[{"type": "ps", "rankIndex": 0, "service": "x:1"}],
    )
    spec = spec_of(document)
    assert spec["createPods"] == [{"role": "ps", "index": 2}], "its number, as it has no rank"
    assert spec["removePods"] == [{"role": "ps", "index": 0}]
    assert lost(document) == []
    assert told(document, "the member's host name is ps-2.elasticjob-sample")
    assert told(document, "TF_CONFIG")
    other = plan(psHosts=["another-edljob-ps-0:2222"], createPods=[{}])
    assert told(other, "'another-edljob-ps-0:2222' is not a parameter server", Kind.LOST)


def test_a_plan_that_changes_nothing_or_names_no_pod_is_an_error() -> None:
    assert "changes nothing" in errors(plan())[0]
    assert "spec.removePods[0]: names no pod" in errors(plan(removePods=["something"]))[0]
    negative = plan(replicaResourceSpecs={"ps": {"replicas": -1}})
    assert "spec.replicaResourceSpecs.ps.replicas: is -1" in errors(negative)[0]
