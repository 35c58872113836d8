"""The options of `submit` and the arguments of `Client.train` become a manifest."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import file_digests, names
from elasticjob_client.aio import AsyncClient
from elasticjob_client.errors import ClientError, WrongArgument
from elasticjob_client.job_template import JobTemplate, check_fields, merged
from elasticjob_client.manifests import (
    MAX_FILES,
    MAX_FILES_BYTES,
    MAX_JOB_NAME,
    Program,
    config_map_manifest,
    job_manifest,
    job_name,
    script_command,
)
from elasticjob_client.scripts import of_script
from elasticjob_client.submission import MAX_JOB_FILE_BYTES, Submission, of_job_file, of_program
from elasticjob_client.template_options import defaults_of, parse_workers, template_of

PROGRAM = Program("a.py", script_command("a.py"), {"a.py": b"x"})


def worker(**fields: Any) -> dict[str, Any]:
    job = job_manifest("a", JobTemplate(image="i", **fields), Program("a.py", ["python", "a.py"]))
    found: dict[str, Any] = job["spec"]["replicaSpecs"]["worker"]
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", {"replicas": 4}),
        ("2:8", {"replicas": 2, "minReplicas": 2, "maxReplicas": 8}),
        ("3:3", {"replicas": 3, "minReplicas": 3, "maxReplicas": 3}),
    ],
)
def test_a_number_is_a_size_and_two_are_its_bounds_and_the_job_begins_with_the_fewest(
    text: str, expected: dict[str, int]
) -> None:
    assert expected.items() <= worker(workers=parse_workers(text)).items()


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
    template = JobTemplate(image="i", framework="mxnet", gpus=1)
    roles = job_manifest("a", template, PROGRAM)["spec"]["replicaSpecs"]
    assert set(roles) == {"worker", "scheduler", "server"}
    assert "resources" not in roles["server"]["template"]["spec"]["containers"][0]


def test_an_unknown_framework_is_refused_with_the_list_of_frameworks() -> None:
    with pytest.raises(ClientError, match=r"give .*custom; did you mean pytorch\?$"):
        JobTemplate(framework="torch")


def test_files_are_where_the_command_names_them() -> None:
    submission = of_program(PROGRAM, JobTemplate(image="i"), name="job")
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
    program = Program("train.py", script_command("train.py"), {"train.py": b""})
    chosen = of_program(program, JobTemplate(image="i"), name="mine")
    assert (chosen.job["metadata"]["name"], chosen.other) == ("mine", None)
    free = of_program(program, JobTemplate(image="i"))
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
    program = of_script(tmp_path / "main.py")
    assert sorted(program.files) == ["deeper.py", "helper.py", "main.py"]


def test_variables_have_a_name_and_a_value() -> None:
    assert template_of({"env": ["A=1", "B=", "A=x=y"]}).env == {"A": "x=y", "B": ""}
    for wrong in ("A", "=1", ""):
        with pytest.raises(ClientError, match="give NAME=value"):
            template_of({"env": [wrong]})


BOMB = "a: &a [1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in itertools.pairwise("abcdefghij")
)
"""Nine aliases in each of ten lines: 400 million values."""


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
        ("[" * 500, "is nested deeper than 60"),
        ("[" * 5000, "nest"),
        ("a: [", "not valid YAML"),
        ("a: 2026-99-99", "is not an ElasticJob"),
        (BOMB, "aliases included; split it"),
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
        ("image", 1),
        ("framework", True),
        ("env", "A=1"),
        ("env", ["A"]),
        ("volumes", "pvc:data:/data"),
        ("pip", [1]),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(field: str, value: object) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(ClientError, match=rf"^{field}: "):
        JobTemplate(**given)


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
    "workers", ["2", "2:4", (1, 2, 3), (), [1, 2], 2.0, True, ("1", "2"), (1, None)]
)
async def test_workers_of_a_program_are_a_number_or_two(workers: Any) -> None:
    with pytest.raises(ClientError, match=r"^workers: "):
        await AsyncClient().train("train.py", image="i", workers=workers)


def test_a_script_whose_name_cannot_travel_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="rename it"):
        of_script(tmp_path / "my script.py")


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
    template = JobTemplate(image="i", framework=framework, env={"A": "1", name: "1"})
    text = json.dumps(job_manifest("a", template, PROGRAM))
    submissions: tuple[Callable[[], Submission], ...] = (
        lambda: of_program(PROGRAM, template),
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
    job = job_manifest("a", JobTemplate(image="i"), PROGRAM)
    job["spec"]["replicaSpecs"]["worker"]["template"]["spec"] = change
    assert of_job_file(json.dumps(job), source="a.yaml").job == job


@pytest.mark.parametrize(
    ("option", "text", "field", "part"),
    [
        ("volume", "pvc:data:/d:ro", "volumes", [{"persistentVolumeClaim": {"claimName": "data"}}]),
        (
            "volume",
            "nfs:s.example:/e:/d",
            "volumes",
            [{"nfs": {"server": "s.example", "path": "/e"}}],
        ),
        ("volume", "host:/d:/d", "volumes", [{"hostPath": {"path": "/d"}}]),
        ("volume", "empty:1Gi:/d", "volumes", [{"emptyDir": {"sizeLimit": "1Gi"}}]),
        ("toleration", "a", "tolerations", [{"key": "a", "operator": "Exists"}]),
        (
            "toleration",
            "a=b:NoExecute",
            "tolerations",
            [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}],
        ),
        ("pull-secret", "a", "imagePullSecrets", [{"name": "a"}]),
        ("node-selector", "a.b/c=d", "nodeSelector", {"a.b/c": "d"}),
        ("service-account", "a", "serviceAccountName", "a"),
    ],
)
def test_a_short_text_becomes_a_part_of_the_pod(
    option: str, text: str, field: str, part: Any
) -> None:
    template = template_of({"image": ["i"], option: [text]})
    job = job_manifest("a", template, PROGRAM)
    found = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"][field]
    if field == "volumes":
        part = [{"name": "volume-0"} | part[0]]
    assert found == part


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("volume", "data:/data", "volumes: 'data:/data' is not a volume; give pvc:CLAIM:PATH, "),
        ("volume", "pvc:Data:/data", "is not a volume"),
        ("volume", "pvc:data:ro", "'ro' is not a path|is not a volume"),
        ("volume", "pvc:data:data", "'data' is not a path; give an absolute one"),
        ("volume", "empty:10:/a/../b", "'/a/../b' is not a path"),
        ("volume", "empty:much:/a", "volumes: 'much' is not a quantity"),
        ("volume", "host:/a:/elasticjob/agent", "nothing can be mounted at /elasticjob/agent"),
        ("toleration", "a=b=c", "tolerations: 'a=b=c' is not a taint; give KEY, "),
        ("toleration", "a:Never", "where EFFECT is NoSchedule, "),
        ("env-secret", "A=secret", "env_secrets: 'A=secret' names no Secret; give NAME=SECRET/KEY"),
        ("env-secret", "secret/key", "names no Secret"),
        ("autoscale", "fast", "autoscale: 'fast' is no objective; give efficiency, "),
        ("autoscale", "cost=nan", "is no objective"),
        ("pull-secret", "A b", "pull_secrets: 'A b' is not a name; give at most 253"),
        ("gpus", "many", "gpus: 'many' is not a whole number"),
        ("pip", "-r other.txt", "pip: '-r other.txt': containers do not have this file"),
        ("pip", "a" * 65_537, "pip: 65537 bytes; requirements have at most 65536"),
        ("pip-cache", "/cache", "pip_cache: '/cache' is on no volume that pods can write to"),
    ],
)
def test_another_text_is_refused_with_what_can_be_given(option: str, text: str, why: str) -> None:
    with pytest.raises(WrongArgument, match=why):
        template_of({option: [text]})


def test_what_a_user_gives_wins_over_the_defaults_and_the_rest_is_joined() -> None:
    defaults = defaults_of(
        {
            "volume": "# of the team\n\npvc:data:/data:ro\npvc:cache:/cache\n",
            "pip-cache": "/cache/pip",
            "env": "A=theirs\nB=theirs",
            "env-secret": "C=theirs/c\ntheirs",
            "gpus": "1",
        }
    )
    own = {"volume": ["empty:1Gi:/data"], "env": ["A=mine", "C=mine"], "gpus": ["0"]}
    both = merged(defaults, template_of(own))
    assert both.volumes == ("pvc:cache:/cache", "empty:1Gi:/data")
    assert both.env == {"B": "theirs", "A": "mine", "C": "mine"}
    assert both.env_secrets == ("theirs",)
    assert (both.gpus, both.pip_cache) == (0, "/cache/pip")


@pytest.mark.guarantee("namespace-defaults")
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "volumes",
            "pvc:a:/a",
            r"data.volumes: is no option of submit; remove it, or give image",
        ),
        ("file", "a.py", r"data.file: is no option"),
        ("binaryData/image", "", r"is no option"),
        ("volume", "data", r"data.volume: volumes: 'data' is not a volume"),
        ("image", "a\nb", r"data.image: has 2 lines; give one line"),
        ("image", " \n", r"data.image: has 0 lines"),
        ("pip-cache", "/nowhere", r"pip_cache: '/nowhere' is on no volume"),
    ],
)
def test_wrong_defaults_are_refused_by_their_key(name: str, text: str, why: str) -> None:
    with pytest.raises(WrongArgument, match=why):
        defaults_of({name: text})


@pytest.mark.guarantee("submitted-files-are-those-of-their-author")
def test_a_folder_lies_beside_the_script_and_a_changed_file_in_it_is_noticed(
    tmp_path: Path,
) -> None:
    deep = tmp_path / "pack" / "deep"
    deep.mkdir(parents=True)
    for name in ("table.py", ".hidden", "__pycache__"):
        (deep / name).mkdir() if name == "__pycache__" else (deep / name).write_text("1")
    (tmp_path / "a.py").write_text("import pack.deep.table")
    program = of_script(tmp_path / "a.py", (), [tmp_path / "pack"])
    submission = of_program(program, JobTemplate(image="i"))
    pod = submission.job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    stored = submission.manifests()[1]["data"]
    mounted = tmp_path / "mounted"
    for item in pod["volumes"][0]["configMap"]["items"]:
        (mounted / item["path"]).parent.mkdir(parents=True, exist_ok=True)
        (mounted / item["path"]).write_text(stored[item["key"]])
    assert sorted(program.files) == ["a.py", "pack/deep/table.py"]
    digests = pod["containers"][0]["env"][0]["value"]
    command = ["python", f"{mounted}/a.py"]
    assert file_digests.difference(digests, command) is None
    (mounted / "pack" / "deep" / "table.py").write_text("2")
    assert "table.py has SHA-256" in (file_digests.difference(digests, command) or "")


def test_files_that_cannot_travel_are_refused_with_bound_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "large").write_bytes(b" " * (MAX_FILES_BYTES + 1))
    (tmp_path / "many").mkdir()
    for number in range(MAX_FILES + 1):
        (tmp_path / "many" / str(number)).touch()
    for name, why in (
        ("large", rf"{MAX_FILES_BYTES + 1} bytes; .* or on a volume \(--volume\)"),
        ("many", rf"has more than {MAX_FILES} files, which is the most; put it into the image"),
        ("none", "cannot be read: No such file"),
        ("a b", "rename it"),
    ):
        with pytest.raises(WrongArgument, match=why):
            of_script(tmp_path / "a.py", (), [tmp_path / name])


@pytest.mark.guarantee("submitted-files-are-those-of-their-author")
@pytest.mark.parametrize("what", ["outside", "pipe", "device", "inside"])
def test_only_regular_files_inside_of_a_folder_are_submitted(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "table").write_text("t")
    if what == "pipe":
        os.mkfifo(folder / "odd")
    else:
        targets = {"outside": "../secret", "device": "/dev/zero", "inside": "table"}
        (folder / "odd").symlink_to(targets[what])
    if what == "inside":
        program = of_script(tmp_path / "a.py", (), [folder])
        assert program.files["pack/odd"] == b"t"
        return
    why = "is not a regular file" if what == "pipe" else "which is not in the folder; name that"
    with pytest.raises(WrongArgument, match=why):
        of_script(tmp_path / "a.py", (), [folder])
    with pytest.raises(WrongArgument, match="is not a regular file"):
        of_script(tmp_path / "a.py", (), ["/dev/zero"])


@pytest.mark.guarantee("submitted-files-are-those-of-their-author")
@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "a private key"),
        ('{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----"', "a private"),
        ("apiVersion: v1\nkind: Config\nusers:\n- name: me", "of a kubeconfig"),
        ('{"kind":"Config","apiVersion":"v1","users":[]}', "of a kubeconfig"),
        ("[default]\naws_secret_access_key = x", "a cloud's credentials"),
        ("-----BEGIN CERTIFICATE-----\ntoken: <unk>\nkind: Configuration\nusers: 3", ""),
    ],
)
def test_a_secret_in_a_folder_is_submitted_only_if_it_is_named(
    tmp_path: Path, content: str, what: str
) -> None:
    (tmp_path / "a.py").write_text("")
    secret = tmp_path / "pack" / "found"
    secret.parent.mkdir()
    secret.write_text(content)
    if what:
        with pytest.raises(WrongArgument, match=f"found has .*{what}.*by itself, too"):
            of_script(tmp_path / "a.py", (), [secret.parent])
    program = of_script(tmp_path / "a.py", (), [secret.parent, *([secret] if what else ())])
    assert program.files["pack/found"] == content.encode()


def test_an_argument_that_does_not_exist_gets_a_suggestion() -> None:
    with pytest.raises(WrongArgument, match="worker: there is no such argument; did you mean wor"):
        check_fields(["image", "worker"])
    with pytest.raises(WrongArgument, match="x: there is no such argument; there are image, "):
        check_fields(["x"])
