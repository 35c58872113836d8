"""Tests Kubeflow's MPIJob, PyTorchJob and TrainJob."""

from __future__ import annotations

from typing import Any

from elasticjob_cli.convert.report import Kind

from tests.support.convert import container_of, errors, lost, role_of, sample, spec_of, told

HOROVOD = "kubeflow/mpi-horovod-elastic.yaml"
PI = "kubeflow/mpi-pi.yaml"


def pytorch(name: str = "pytorch-simple") -> Any:
    [document] = sample(f"kubeflow/{name}.yaml")
    return document


def train() -> Any:
    [document] = sample("kubeflow/train-job.yaml")
    return document


def test_horovod_elastic_of_an_mpi_job_runs_without_ssh() -> None:
    [document] = sample(HOROVOD)
    spec = spec_of(document)
    assert (spec["framework"], spec["runPolicy"]["startPolicy"]) == ("horovod", "AllReady")
    assert "discover_hosts" in container_of(document, "launcher")["args"]
    assert "command" not in container_of(document, "worker")
    worker = spec["replicaSpecs"]["worker"]
    assert (worker["minReplicas"], worker["maxReplicas"], worker["slotsPerReplica"]) == (1, 3, 1)
    assert spec["replicaSpecs"]["launcher"]["restartLimit"] == 6
    assert lost(document) == []


def test_plain_mpirun_is_custom_and_its_operators_files_are_lost() -> None:
    [document] = sample(PI)
    spec = spec_of(document)
    assert spec["framework"] == "custom"
    assert spec["runPolicy"]["ttlSecondsAfterFinished"] == 60
    assert spec["replicaSpecs"]["launcher"]["completion"] == {"minSucceeded": 1}
    assert container_of(document, "worker")["command"] == ["/usr/sbin/sshd"]
    assert told(document, "discover_hosts --hostfile", Kind.LOST)
    document["spec"]["launcherCreationPolicy"] = "AtStartup"
    for field in ("launcherCreationPolicy", "sshAuthMountPath"):
        assert told(document, field, Kind.DIFFERS), field


def test_an_mpi_worker_without_a_command_gets_an_ssh_server() -> None:
    [document] = sample(PI)
    worker = document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    del worker["command"], worker["args"]
    assert container_of(document, "worker")["command"] == ["/usr/sbin/sshd", "-De"]


def test_other_versions_of_mpi_jobs_are_rejected() -> None:
    [document] = sample(PI)
    document["apiVersion"] = "kubeflow.org/v1alpha2"
    assert "MPIJob kubeflow.org/v2beta1" in errors(document)[0]


def test_horovod_elastic_of_an_mpi_job_v1_runs_as_one_of_v2beta1() -> None:
    [document] = sample("kubeflow/mpi-v1-elastic.yaml")
    spec = spec_of(document)
    assert (spec["framework"], spec["runPolicy"]["cleanPodPolicy"]) == ("horovod", "Running")
    worker = spec["replicaSpecs"]["worker"]
    assert (worker["minReplicas"], worker["maxReplicas"]) == (1, 3)
    assert spec["replicaSpecs"]["launcher"]["restartLimit"] == 0
    assert lost(document) == []


def test_groups_of_a_tf_job_become_roles_of_tensorflow() -> None:
    [document] = sample("kubeflow/tf-job.yaml")
    spec = spec_of(document)
    assert (spec["framework"], sorted(spec["replicaSpecs"])) == ("tensorflow", ["ps", "worker"])
    assert role_of(document, "ps")["restartLimit"] == 0
    assert container_of(document, "worker")["name"] == "tensorflow"
    assert lost(document) == []
    specs = document["spec"]["tfReplicaSpecs"]
    specs["Master"] = specs.pop("PS")
    assert sorted(spec_of(document)["replicaSpecs"]) == ["chief", "worker"]


def test_a_jax_job_has_the_role_worker_of_a_fixed_size() -> None:
    [document] = sample("kubeflow/jax-job.yaml")
    worker = role_of(document, "worker")
    assert spec_of(document)["framework"] == "jax"
    assert (worker["replicas"], worker["minReplicas"]) == (2, 2)
    assert lost(document) == []
    container = document["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"name": "jaxjob-port", "containerPort": 1234}]
    env = {each["name"]: each["value"] for each in container_of(document, "worker")["env"]}
    assert env == {
        "COORDINATOR_ADDRESS": "$(ELASTICJOB_COORDINATOR_HOST)",
        "COORDINATOR_PORT": "1234",
        "NUM_PROCESSES": "$(JAX_NUM_PROCESSES)",
        "PROCESS_ID": "$(JAX_PROCESS_ID)",
    }


def test_master_and_workers_of_a_pytorch_job_become_one_role_of_a_fixed_size() -> None:
    worker = role_of(pytorch(), "worker")
    assert (worker["replicas"], worker["minReplicas"], worker.get("maxReplicas")) == (2, 2, None)
    assert spec_of(pytorch())["runPolicy"]["cleanPodPolicy"] == "None"
    assert lost(pytorch()) == []
    document = pytorch()
    roles = document["spec"]["pytorchReplicaSpecs"]
    roles["Worker"] = pytorch()["spec"]["pytorchReplicaSpecs"]["Worker"]
    master = roles["Master"]["template"]["spec"]["containers"][0]
    master["command"] = ["python", "master.py"]
    assert told(document, "template differs", Kind.LOST)


def test_an_elastic_pytorch_job_keeps_its_bounds_and_uses_the_agents_world() -> None:
    document = pytorch("pytorch-elastic")
    worker = role_of(document, "worker")
    bounds = (worker["minReplicas"], worker["maxReplicas"])
    assert (bounds, worker["processRestartLimit"]) == ((1, 2), 100)
    command = ["python", "-m", "torch.distributed.run", "./echo.py"]
    assert container_of(document, "worker")["command"] == command
    assert lost(document) == []
    document["spec"]["elasticPolicy"] |= {"nProcPerNode": 2, "metrics": [{"type": "Resource"}]}
    assert role_of(document, "worker")["slotsPerReplica"] == 2
    assert told(document, "HorizontalPodAutoscaler", Kind.LOST)


def test_restart_policies_and_limits() -> None:
    document = pytorch()
    queue = {"queue": "q", "minAvailable": 2}
    document["spec"]["runPolicy"] = {"backoffLimit": 4, "schedulingPolicy": queue}
    assert role_of(document, "worker")["restartLimit"] == 4
    assert spec_of(document)["runPolicy"]["schedulingPolicy"] == {"gang": "volcano", "queue": "q"}
    assert told(document, "minAvailable", Kind.LOST)
    for name in ("Master", "Worker"):
        document["spec"]["pytorchReplicaSpecs"][name]["restartPolicy"] = "ExitCode"
    rules = role_of(document, "worker")["restartRules"]
    assert [rule["action"] for rule in rules] == ["FailJob", "FailJob"]
    assert sorted(code for rule in rules for code in rule["exitCodes"]) == list(range(1, 128))
    for name in ("Master", "Worker"):
        document["spec"]["pytorchReplicaSpecs"][name]["restartPolicy"] = "Never"
    assert role_of(document, "worker")["restartLimit"] == 0


def test_the_run_policy_of_older_versions_is_in_the_spec() -> None:
    older = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 5, "backoffLimit": 2}
    for [document] in (sample("kubeflow/pytorch-simple.yaml"), sample("kubeflow/tf-job.yaml")):
        document["spec"] |= older | {"activeDeadlineSeconds": 60}
        document["spec"]["runPolicy"] = {"activeDeadlineSeconds": 7}
        assert spec_of(document)["runPolicy"] == older | {"activeDeadlineSeconds": 7}
        for name in (*older, "activeDeadlineSeconds"):
            assert told(document, f"spec.{name}: is runPolicy.{name}", Kind.DIFFERS)
        assert lost(document) == []


def test_the_user_must_add_the_overrides_of_older_train_jobs() -> None:
    for name in ("podTemplateOverrides", "podSpecOverrides"):
        document = train()
        document["spec"][name] = [{"targetJobs": [{"name": "node"}]}]
        assert told(document, f"{name}: changes the runtime's pods", Kind.LOST)


def test_a_container_without_an_image_is_reported() -> None:
    document = pytorch()
    spec = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["initContainers"] = [{"name": "i"}]
    del spec["containers"][0]["image"]
    for name in ("pytorch", "i"):
        assert told(document, f"container '{name}' has no image", Kind.LOST)


def test_a_train_job_keeps_its_own_fields_and_the_rest_is_lost() -> None:
    spec = spec_of(train())
    worker = spec["replicaSpecs"]["worker"]
    assert spec["framework"] == "pytorch"
    assert (worker["replicas"], worker["slotsPerReplica"]) == (2, 4)
    assert ["runtime torch-distributed" in text for text in lost(train())] == [True]


def test_the_index_of_a_node_that_a_command_names_is_that_of_the_member() -> None:
    document = train()
    document["spec"]["trainer"]["args"] = ["--shard=$(JOB_COMPLETION_INDEX)"]
    first, *_ = container_of(document, "worker")["env"]
    assert first["name"] == "JOB_COMPLETION_INDEX"
    assert "elasticjob.dev/index" in first["valueFrom"]["fieldRef"]["fieldPath"]


def test_the_user_must_add_the_runtimes_fields() -> None:
    document = train()
    document["spec"]["trainer"] = {"numProcPerNode": "auto"}
    document["spec"]["initializer"] = {"dataset": {"storageUri": "hf://data"}}
    container = container_of(document, "worker")
    assert container["image"] == "image-of-the-runtime"
    assert container["command"] == ["command-of-the-image"]
    text = "\n".join(lost(document))
    assert all(part in text for part in ("spec.trainer.image", "has no command", "initializer"))
