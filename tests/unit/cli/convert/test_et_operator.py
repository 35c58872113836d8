"""Tests et-operator's TrainingJob, ScaleIn and ScaleOut."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_cli.convert.converters import convert
from elasticjob_cli.convert.report import Kind

from tests.support.convert import (
    container_of,
    errors,
    lost,
    role_of,
    sample,
    spec_of,
    told,
    written,
)
from tests.support.peer_documents import minimal

JOB = "et_operator/training-job.yaml"
SCALERS = "et_operator/scalers.yaml"


def job(**fields: Any) -> Any:
    [document] = sample(JOB)
    document["spec"] |= fields
    return document


def test_launcher_and_workers_become_horovods_roles_and_nothing_is_lost() -> None:
    spec = spec_of(job())
    assert spec["framework"] == "horovod"
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "startPolicy": "AllReady"}
    worker = spec["replicaSpecs"]["worker"]
    assert {name: worker[name] for name in ("replicas", "minReplicas", "maxReplicas")} == {
        "replicas": 2, "minReplicas": 1, "maxReplicas": 9,
    }  # fmt: skip
    assert lost(job()) == []


def test_the_launcher_runs_stock_horovodrun_with_our_discovery_script() -> None:
    command = container_of(job(), "launcher")["command"]
    assert command[:2] == ["sh", "-c"]
    assert "--host-discovery-script discover_hosts python" in command[2]
    assert "/etc/edl" not in command[2]


def test_workers_wait_for_the_launcher_without_an_ssh_server() -> None:
    document = job()
    worker = document["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    assert "command" not in container_of(document, "worker")
    worker |= {"command": ["sh", "-c"], "args": ["/usr/sbin/sshd && sleep 365d"]}
    written = container_of(document, "worker")
    assert {"command", "args"} & written.keys() == set()
    assert lost(document) == []


def test_keys_of_ssh_are_not_left_out_in_silence() -> None:
    document = job()
    document["metadata"]["annotations"] = {"arena.kubeflow.org/ssh-secret": "keys"}
    assert told(document, "its keys are not mounted", Kind.LOST)


def test_the_launchers_restart_limit_is_the_jobs() -> None:
    assert role_of(job(), "launcher")["restartLimit"] == 0
    assert role_of(job(restartPolicy="OnFailure"), "launcher")["restartLimit"] == 6
    assert role_of(job(restartPolicy="OnFailure", backoffLimit=2), "launcher")["restartLimit"] == 2


def test_slots_suspension_and_attach_mode() -> None:
    document = job(slotsPerWorker=1, launcherAttachMode="kubexec")
    document["metadata"]["annotations"] = {"job-supervisor.kube-ai.io/job-suspended": "true"}
    assert role_of(document, "worker")["slotsPerReplica"] == 1
    assert spec_of(document)["runPolicy"]["suspend"] is True
    assert told(document, "kubexec")
    assert lost(document) == []


def test_bounds_that_were_never_enforced_are_moved_and_reported() -> None:
    document = job()
    document["spec"]["etReplicaSpecs"]["worker"] |= {"minReplicas": 5, "maxReplicas": 1}
    worker = role_of(document, "worker")
    assert (worker["minReplicas"], worker["maxReplicas"]) == (2, 2)
    assert told(document, "was 5") + told(document, "was 1") == 2


def test_missing_bounds_are_taken_from_horovodrun_or_invented() -> None:
    document = job()
    for name in ("minReplicas", "maxReplicas"):
        del document["spec"]["etReplicaSpecs"]["worker"][name]
    worker = role_of(document, "worker")
    assert (worker["minReplicas"], worker["maxReplicas"]) == (1, 9)


def test_host_files_are_at_the_agents_paths_and_only_keys_are_lost() -> None:
    document = job()
    launcher = document["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]["containers"][0]
    for theirs, ours in (
        ("/etc/mpi/deepspeed-hostfile", "/etc/edl/deepspeed-hostfile"),
        ("/job/hostfile", "/etc/edl/deepspeed-hostfile"),
        ("/etc/edl/hostfile", "/etc/edl/hostfile"),
    ):
        launcher["command"] = ["deepspeed", "--hostfile", theirs, "train.py"]
        assert spec_of(document)["framework"] == "horovod"
        command = ["deepspeed", "--hostfile", ours, "train.py"]
        assert container_of(document, "launcher")["command"] == command
        [keys] = lost(document)
        assert "put keys into the image" in keys
    launcher["command"] = ["mpirun", "--hostfile", "/data/etc/mpi/hostfile", "train"]
    assert spec_of(document)["framework"] == "custom"
    assert [text for text in lost(document) if "a host file" in text]


def test_fixed_hosts_of_horovodrun_are_lost() -> None:
    document = job()
    launcher = document["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]["containers"][0]
    launcher["command"] = ["horovodrun", "-np", "2", "-H", "a:1,b:1", "python", "train.py"]
    assert [text for text in lost(document) if "--host-discovery-script" in text]


def test_scalers_keep_job_count_and_time() -> None:
    by_count, by_name, out = sample(SCALERS)
    assert spec_of(by_count) == {"jobName": "elastic-training", "count": 1}
    pods = ["elastic-training-worker-1"]
    assert spec_of(by_name) == {"jobName": "elastic-training", "podNames": pods}
    assert spec_of(out) == {"jobName": "elastic-training", "timeoutSeconds": 300, "count": 1}
    assert [lost(document) for document in (by_count, by_name, out)] == [[], [], []]


def test_pods_are_named_after_the_converted_jobs_name() -> None:
    _, by_name, _ = sample(SCALERS)
    long = "elastic-training-of-a-very-large-language-model"
    by_name["spec"] = {"selector": {"name": long}, "toDelete": {"podNames": [f"{long}-worker-3"]}}
    document = job()
    document["metadata"]["name"] = long
    name = written(document)["metadata"]["name"]
    assert len(name) <= 40
    assert spec_of(by_name) == {"jobName": name, "podNames": [f"{name}-worker-3"]}


def test_the_launcher_runs_scripts_with_their_variables() -> None:
    [document] = sample("et_operator/scale-out-with-script.yaml")
    assert lost(document) == []
    spec = spec_of(document)
    assert spec["script"] == 'sh /usr/local/bin/scaler.sh --add "$1"'
    assert spec["env"] == [{"name": "TEST1", "value": "test1"}, {"name": "TEST2", "value": "test2"}]
    assert told(document, "runPolicy.allowScripts: true")


def test_a_variable_name_that_no_shell_accepts_is_an_error() -> None:
    [document] = sample("et_operator/scale-out-with-script.yaml")
    document["spec"]["env"] = [{"name": "not-a-name", "value": "x"}]
    assert "not-a-name" in errors(document)[0] or "env[0].name" in errors(document)[0]
    document["spec"]["env"] = [{"name": "NUMBER", "value": 3}]
    assert "spec.env[0].value" in errors(document)[0]


def test_variables_without_a_script_are_left_out_and_reported() -> None:
    [document] = sample("et_operator/scale-out-with-script.yaml")
    del document["spec"]["script"]
    assert spec_of(document).keys() & {"script", "env"} == set()
    assert told(document, "without a script")


def test_a_scale_in_that_names_nothing_is_an_error_and_not_a_removal_of_all() -> None:
    by_count, _, out = sample(SCALERS)
    by_count["spec"]["toDelete"] = {}
    assert "spec.toDelete: has neither count nor podNames" in errors(by_count)[0]
    del out["spec"]["toAdd"]
    assert "spec.toAdd.count" in errors(out)[0]


def test_an_object_without_a_name_is_kept_and_says_that_apply_refuses_it() -> None:
    document = job()
    document["metadata"] = {"generateName": "train-"}
    result = convert(document, 1)
    assert result.object is not None
    assert result.object["metadata"] == {"generateName": "train-"}
    [note] = [each for each in result.notes if each.field == "metadata.generateName"]
    assert "kubectl apply refuses an object without a name: use kubectl create" in note.message


@pytest.mark.guarantee("converted-jobs-are-accepted")
def test_a_worker_that_would_train_alone_beside_the_launcher_loses_its_command() -> None:
    document = minimal("kai.alibabacloud.com/v1alpha1", "TrainingJob")
    worker = document["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    worker |= {"command": ["/usr/bin/python3", "train.py"], "args": ["--lr", "1"]}
    assert "command" not in container_of(document, "worker")
    assert ["would train alone" in text for text in lost(document)] == [True]
