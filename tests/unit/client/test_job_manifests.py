"""The options of `submit` and the arguments of `Client.train` become a manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import file_digests, names
from elasticjob_client.aio import AsyncClient
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.manifests import (
    MAX_FILES_BYTES,
    MAX_JOB_NAME,
    Training,
    Workers,
    config_map_manifest,
    job_manifest,
    job_name,
    parse_env,
    parse_workers,
    script_command,
)
from elasticjob_client.submission import (
    MAX_JOB_FILE_BYTES,
    Submission,
    of_files,
    of_job_file,
    of_script,
)


def worker(**options: Any) -> dict[str, Any]:
    job = job_manifest("a", Training(command=["python", "a.py"], image="i", **options))
    found: dict[str, Any] = job["spec"]["replicaSpecs"]["worker"]
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", Workers(1)), ("4", Workers(4)), ("2:8", Workers(2, 2, 8)), ("3:3", Workers(3, 3, 3))],
)
def test_a_number_is_a_size_and_two_are_its_bounds_and_the_job_begins_with_the_fewest(
    text: str, expected: Workers
) -> None:
    assert parse_workers(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "2:", ":2", "3:2", "1:2:3", "10001", "1:10001", "1.5", "٣"]
)
def test_other_numbers_of_workers_are_refused(text: str) -> None:
    with pytest.raises(ClientError, match="workers"):
        parse_workers(text)


@pytest.mark.parametrize("limit", [0, 10_000])
def test_a_restart_limit_is_that_of_the_workers(limit: int) -> None:
    assert worker(restart_limit=limit)["restartLimit"] == limit


@pytest.mark.parametrize("limit", [-1, 10_001, True, "3"])
def test_another_restart_limit_is_refused(limit: object) -> None:
    with pytest.raises(ClientError, match=r"restart_limit: .* from 0 to 10000"):
        worker(restart_limit=limit)


def test_what_is_not_asked_for_is_left_to_the_api() -> None:
    assert worker() == {
        "replicas": 1,
        "template": {
            "spec": {"containers": [{"name": "train", "image": "i", "command": ["python", "a.py"]}]}
        },
    }


def test_resources_and_variables_are_those_of_the_container() -> None:
    container = worker(gpus=2, cpu="500m", memory="4Gi", env={"A": "b"})["template"]["spec"][
        "containers"
    ][0]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "4Gi"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "2"},
    }


def test_a_framework_that_needs_more_roles_gets_them_without_gpus() -> None:
    roles = job_manifest("a", Training(["python"], "i", framework="mxnet", gpus=1))["spec"][
        "replicaSpecs"
    ]
    assert set(roles) == {"worker", "scheduler", "server"}
    assert "resources" not in roles["server"]["template"]["spec"]["containers"][0]


def test_an_unknown_framework_is_refused_with_the_list_of_frameworks() -> None:
    with pytest.raises(ClientError, match=r"give .*pytorch"):
        job_manifest("a", Training(["python"], "i", framework="torch"))


def test_files_are_where_the_command_names_them() -> None:
    submission = of_files(
        {"a.py": b"x"}, Training(script_command("a.py"), "i"), source="a.py", name="job"
    )
    pod = submission.job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    mount = pod["containers"][0]["volumeMounts"][0]
    volume = pod["volumes"][0]
    assert pod["containers"][0]["command"] == ["python", "-u", f"{mount['mountPath']}/a.py"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert volume["configMap"] == {"name": submission.config_map}
    assert submission.config_map.startswith("job-script-")
    digests = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert digests == {names.ENV_FILES_SHA256: file_digests.encoded({"a.py": b"x"})}


def test_a_file_that_is_no_text_arrives_as_it_is() -> None:
    made = config_map_manifest("m", {"a": b"\xff", "b": b"text"})
    assert (made["binaryData"], made["data"], made["immutable"]) == (
        {"a": "/w=="},
        {"b": "text"},
        True,
    )


def test_files_that_are_too_large_are_refused_with_bound_and_remedy() -> None:
    config_map_manifest("m", {"a.py": b" " * MAX_FILES_BYTES})
    with pytest.raises(
        ClientError,
        match=rf"a.py: {MAX_FILES_BYTES + 1} bytes.* at most {MAX_FILES_BYTES}; .*image",
    ):
        config_map_manifest("m", {"a.py": b" " * (MAX_FILES_BYTES + 1)})


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("train.py", "train-x"),
        ("Train_ResNet50.v2.py", "train-resnet50-v2-x"),
        ("50.py", "job-x"),
        ("2fast.py", "fast-x"),
        ("ü.py", "job-x"),
        ("<lambda>", "lambda-x"),
        ("a" * 90, f"{'a' * (MAX_JOB_NAME - 2)}-x"),
    ],
)
def test_a_job_is_named_after_its_program(source: str, name: str) -> None:
    assert job_name(source, "x") == name


def test_a_job_has_its_scripts_own_name_and_another_one_only_if_that_is_taken() -> None:
    assert job_name("a" * 90) == "a" * MAX_JOB_NAME
    training = Training(script_command("train.py"), "i")
    chosen = of_files({"train.py": b""}, training, source="train.py", name="mine")
    assert (chosen.job["metadata"]["name"], chosen.other) == ("mine", None)
    free = of_files({"train.py": b""}, training, source="train.py", name=None)
    assert free.job["metadata"]["name"] == "train"
    assert free.other is not None
    assert re.fullmatch("train-[a-z0-9]{5}", free.other().job["metadata"]["name"])


@pytest.mark.parametrize("memory", ["4", "4k", "900Ki", " 16 "])
def test_an_amount_of_memory_without_its_unit_is_refused(memory: str) -> None:
    with pytest.raises(ClientError, match=r"memory: .* is less than 1Mi; give a unit, such as"):
        worker(memory=memory)
    for amount in ("4Gi", "4294967296"):
        assert worker(memory=amount)


def test_amounts_are_texts_with_a_quantity() -> None:
    with pytest.raises(ClientError, match="memory: 4 is not a quantity; give a text such as 500Mi"):
        worker(memory=4)
    with pytest.raises(ClientError, match="cpu: 2 is not a quantity; give a text such as 500m"):
        worker(cpu=2)
    with pytest.raises(ClientError, match="memory: '1X' is not a quantity"):
        worker(memory="1X")


def test_modules_beside_a_script_that_it_imports_are_submitted_with_it(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os, helper.x, package\nfrom . import other\n")
    (tmp_path / "helper.py").write_text("def f():\n    from deeper import x\n    import main\n")
    (tmp_path / "deeper.py").write_text("import helper\nthis is not Python\n")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    submission = of_script(tmp_path / "main.py", Training((), "i"))
    assert sorted(submission.files) == ["deeper.py", "helper.py", "main.py"]


def test_variables_have_a_name_and_a_value() -> None:
    assert parse_env(["A=1", "B=", "A=x=y"]) == {"A": "x=y", "B": ""}
    for wrong in ("A", "=1", ""):
        with pytest.raises(ClientError, match="give NAME=value"):
            parse_env([wrong])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 documents"),
        ("a: 1\n---\nb: 2", "2 documents"),
        (
            "kind: Job",
            "is not an ElasticJob of elasticjob.dev/v1alpha1; `elasticjob init` writes one",
        ),
        ("- 1", "is not an ElasticJob"),
        ("[" * 5000, "is not YAML"),
        ("a: [", "is not YAML"),
        ("a: 2026-99-99", "is not YAML"),
        ("apiVersion: elasticjob.dev/v1alpha1\nkind: ElasticJob", "metadata: is required"),
        (" " * (MAX_JOB_FILE_BYTES + 1), f"at most {MAX_JOB_FILE_BYTES}"),
    ],
)
def test_a_text_that_is_not_a_job_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(ClientError, match=f"job.yaml.*{why}"):
        of_job_file(text, source="job.yaml")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", -1),
        ("gpus", 65),
        ("gpus", 1.5),
        ("gpus", True),
        ("image", ""),
        ("image", None),
        ("framework", None),
        ("env", "A=1"),
        ("env", ["A"]),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(field: str, value: object) -> None:
    given: dict[str, Any] = {"command": ["python"], "image": "i", field: value}
    with pytest.raises(ClientError, match=rf"^{field}: "):
        Training(**given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"args": ["--epochs", 10]}, "args: 10 is not a text; give one such as '10'"),
        ({"args": [None]}, "args: None is not a text; give one such as '10'"),
        ({"env": {"A": "1", "B": 1}}, "env: B: 1 is not a text; give one such as '10'"),
        ({"env": {"A": True}}, "env: A: True is not a text; give one such as '10'"),
        ({"env": {1: "a"}}, "env: 1 is not a text; give one such as '10'"),
    ],
)
async def test_arguments_and_variables_of_a_program_are_texts(
    given: dict[str, Any], why: str
) -> None:
    with pytest.raises(ClientError) as refused:
        await AsyncClient().train("train.py", image="i", **given)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "workers", ["2", "2:4", (1, 2, 3), (), [1, 2], 2.0, True, None, ("1", "2"), (1, None)]
)
async def test_workers_of_a_program_are_a_number_or_two(workers: Any) -> None:
    with pytest.raises(ClientError, match=r"^workers: "):
        await AsyncClient().train("train.py", image="i", workers=workers)


def test_a_script_whose_name_cannot_travel_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="rename it"):
        of_script(tmp_path / "my script.py", Training(command=(), image="i"))


@pytest.mark.parametrize(
    ("framework", "name", "setter"),
    [
        ("custom", "ELASTICJOB_RANK", "agent"),
        ("custom", "ELASTICJOB_WORKER_HOSTS", "agent"),
        ("custom", "ELASTICJOB_TOKEN", "operator"),
        ("pytorch", "WORLD_SIZE", "agent"),
        ("custom", "WORLD_SIZE", None),
        ("custom", "ELASTICJOB_FILES_SHA256", None),
        ("pytorch", "MINE", None),
    ],
)
def test_variables_that_the_operator_would_refuse_are_refused_in_scripts_and_job_files(
    framework: str, name: str, setter: str | None
) -> None:
    training = Training(["python"], "i", framework=framework, env={"A": "1", name: "1"})
    text = json.dumps(job_manifest("a", training))
    submissions: tuple[Callable[[], Submission], ...] = (
        lambda: of_files({"a.py": b""}, training, source="a.py", name=None),
        lambda: of_job_file(text, source="a.yaml"),
    )
    for submitted in submissions:
        if setter is None:
            assert submitted()
            continue
        refused = rf"env\[1\]\.name: '{name}' is set by the {setter}"
        with pytest.raises(WrongArgument, match=refused):
            submitted()


@pytest.mark.parametrize(
    "change", [{"containers": []}, {"containers": ["a"]}, {"containers": [{"env": {"A": "1"}}]}]
)
def test_a_job_file_of_another_form_is_left_to_the_api_server(change: dict[str, Any]) -> None:
    job = job_manifest("a", Training(["python"], "i"))
    job["spec"]["replicaSpecs"]["worker"]["template"]["spec"] = change
    assert of_job_file(json.dumps(job), source="a.yaml").job == job
