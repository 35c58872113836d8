"""Tests a TrainJob that is converted together with its runtime."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from elasticjob_cli.convert.report import Kind
from elasticjob_cli.convert.tables.rows import TABLES, Fate, Row

from tests.support.convert import converted, errors, notes_of, sample, spec_of

RUNTIME = "ClusterTrainingRuntime trainer.kubeflow.org/v1alpha1"
NODE = "spec.template.spec.replicatedJobs[2].template.spec"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def both() -> list[Any]:
    """Return a TrainJob and its runtime; each may be changed."""
    return sample("kubeflow/train-job-with-runtime.yaml")


def pod_of(job: Any, runtime: Any) -> Any:
    return spec_of(job, runtime)["replicaSpecs"]["worker"]["template"]["spec"]


def env(container: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


def jobs(runtime: Any) -> Any:
    """Return the replicated jobs: data, model, and the program."""
    return runtime["spec"]["template"]["spec"]["replicatedJobs"]


def with_value(runtime: Any, path: str, value: Any) -> Any:
    """Return a runtime with a value at a path; an element of a list is that of the program."""
    changed = copy.deepcopy(runtime)
    where = changed
    *around, last = path.replace("replicatedJobs[]", "replicatedJobs[2]").split(".")
    for part in around:
        name, _, number = part.partition("[")
        where = where.setdefault(name, {})
        where = where[int(number.strip("]") or 0)] if number else where
    where[last] = value
    return changed


@pytest.mark.guarantee("converted-jobs-are-accepted")
def test_a_train_job_has_the_pods_of_its_runtime_with_its_own_values() -> None:
    spec = spec_of(*both())
    worker = spec["replicaSpecs"]["worker"]
    assert spec["framework"] == "pytorch"
    assert spec["runPolicy"] == {
        "schedulingPolicy": {"gang": "coscheduling"},
        "ttlSecondsAfterFinished": 600,
        "backoffLimit": 2,
    }
    assert (worker["replicas"], worker["minReplicas"]) == (2, 2)
    assert [each["metadata"]["name"] for each in worker["volumeClaimTemplates"]] == ["initializer"]
    pod = worker["template"]["spec"]
    first, second = pod["containers"]
    assert (first["name"], second["name"]) == ("node", "proxy")
    assert first["image"] == "registry.example/torchtune:2"
    assert first["command"] == ["torchrun", "tune.py"]
    assert env(first) == {"LEVEL": "2", "NCCL_DEBUG": "INFO"}
    assert first["resources"] == {"requests": {"cpu": "2500m"}, "limits": {"memory": "8Gi"}}
    assert pod["nodeSelector"] == {"pool": "gpus"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


@pytest.mark.guarantee("converted-jobs-are-accepted")
def test_initializers_are_init_containers_and_what_else_their_pods_have_is_lost() -> None:
    job, runtime = both()
    data, model = pod_of(job, runtime)["initContainers"]
    assert env(data) == {"STORAGE_URI": "hf://own/data"}
    assert data["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert env(model) == {"REVISION": "v2"}
    lost = notes_of(converted(job, runtime), Kind.LOST)
    assert [text for text in lost if "spec.serviceAccountName: of the initializer's own" in text]
    assert [text for text in lost if "initializer is one claim of all pods there" in text]
    assert len(lost) == 2
    del jobs(runtime)[0]
    lost = notes_of(converted(job, runtime), Kind.LOST)
    assert [text for text in lost if "the runtime has no job dataset-initializer" in text]


def test_processes_are_counted_as_trainer_counts_them() -> None:
    job, runtime = both()
    container = jobs(runtime)[2]["template"]["spec"]["template"]["spec"]["containers"][1]
    for number, command, resources, count in (
        (None, ["torchrun", "a.py"], {"requests": {"cpu": "2500m"}}, 3),
        (None, ["torchrun", "a.py"], {"limits": {"cpu": 2}}, 2),
        ("auto", ["torchrun", "a.py"], {"limits": {"cpu": 8, "nvidia.com/gpu": 2}}, None),
        ("cpu", ["torchrun", "a.py"], {"limits": {"cpu": "3500m"}}, 4),
        (4, ["torchrun", "a.py"], {"limits": {"cpu": 8}}, 4),
        (None, ["python", "a.py"], {"limits": {"cpu": 8}}, None),
    ):
        container["resources"] = resources
        runtime["spec"]["mlPolicy"]["torch"] = {"numProcPerNode": number}
        job["spec"]["trainer"] = {"command": command}
        worker = spec_of(job, runtime)["replicaSpecs"]["worker"]
        assert worker.get("slotsPerReplica") == count, (number, command, resources)
        assert worker["replicas"] == 1


@pytest.mark.parametrize("field", ["podTemplateOverrides", "podSpecOverrides"])
def test_overrides_of_older_versions_change_the_jobs_that_they_name(field: str) -> None:
    job, runtime = both()
    del job["spec"]["runtimePatches"]
    pod = {"tolerations": [{"key": "x"}], "containers": [{"name": "node", "env": [
        {"name": "LEVEL", "value": "3"}]}]}  # fmt: skip
    override = {"spec": pod} if field == "podTemplateOverrides" else pod
    job["spec"][field] = [{"targetJobs": [{"name": "node"}], **override}]
    written = pod_of(job, runtime)
    assert written["tolerations"] == [{"key": "x"}]
    assert env(written["containers"][0])["LEVEL"] == "3"
    job["spec"][field][0]["targetJobs"] = [{"name": "other"}]
    [error] = errors(job, runtime)
    assert "changes other, but the runtime has dataset-initializer, model-initializer," in error


def test_what_nothing_here_can_run_is_refused_by_name() -> None:
    job, runtime = both()
    for policy in ("mpi", "flux", "xgboost"):
        changed = with_value(runtime, "spec.mlPolicy", {policy: {}})
        [error] = errors(job, changed)
        assert f"torchtune-small: spec.mlPolicy.{policy}: refused: " in error
    del job["spec"]["runtimePatches"]
    changed = with_value(runtime, f"{NODE}.template.spec.containers", [{"name": "main"}])
    assert "has no container node, which trains" in errors(job, changed)[0]
    jobs(runtime)[2]["template"]["metadata"] = {}
    assert f"none has the label {STEP}: trainer" in errors(job, runtime)[0]
    [tuned, runtime] = both()
    tuned["spec"]["trainer"]["command"] = ["tune", "run"]
    assert "write the whole command" in errors(tuned, runtime)[0]


def test_a_job_that_is_no_step_of_the_training_is_lost_by_name() -> None:
    job, runtime = both()
    jobs(runtime).append({"name": "cache", "template": {"spec": {}}})
    lost = notes_of(converted(job, runtime), Kind.LOST)
    assert [text for text in lost if "replicatedJobs[3]: cache is no step" in text]


def test_a_runtime_is_found_by_kind_and_name_and_written_unchanged() -> None:
    job, runtime = both()
    result = converted(runtime, job)
    assert (result.passed_through, result.object) == (True, runtime)
    assert notes_of(result, Kind.LOST) == []
    job["spec"]["runtimeRef"]["kind"] = "TrainingRuntime"
    found = "\n".join(notes_of(converted(job, runtime), Kind.LOST))
    assert "append the output of kubectl get trainingruntime torchtune-small -o yaml" in found


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize(
    "row",
    [row for row in TABLES[RUNTIME] if row.fate is Fate.LOST and "refused" not in row.why],
    ids=lambda row: row.theirs,
)
def test_a_lost_field_of_a_runtime_is_named_with_the_reason_of_its_row(row: Row) -> None:
    job, runtime = both()
    value: Any = {"a": "b"} if row.theirs.endswith("metadata") else "value"
    result = converted(job, with_value(runtime, row.theirs, value))
    path = row.theirs.replace("[]", "[2]")
    notes = [note.message for note in result.notes if note.field.endswith(f": {path}")]
    assert notes == [row.why]
