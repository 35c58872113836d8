"""Runs a user's first job, by `submit` and by Python.

A script and a function reach their pods, train, are scaled and end.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from elasticjob.client import AsyncClient, Client, ClientError, JobEnded, NoSuchObject
from elasticjob_api import names
from elasticjob_client.cluster import Cluster as Session
from elasticjob_client.functions import program
from elasticjob_client.job_template import JobTemplate
from elasticjob_client.starter import starter
from elasticjob_client.submission import of_program, submit
from elasticjob_kube.resources import CONFIG_MAPS

from tests.support.e2e import images
from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.thorough import some_of
from tests.support.tiny_wheel import tiny_wheel
from tests.support.wait import until, wait_until

SCRIPT = """\
import pathlib, sys, time
import elasticjob
folder = pathlib.Path(sys.argv[1])
print("rank", elasticjob.world().rank, "of", elasticjob.world().size, flush=True)
step = 0
while not (folder / "finish").exists():
    step += 1
    time.sleep(0.05)
    elasticjob.report_step(step, total=1_000_000, samples=4)
    if elasticjob.should_stop():
        elasticjob.confirm_stop()
        raise SystemExit(0)
"""
WORD = "of the module"
EVERYTHING = """\
import os, pathlib, sys
import tiny
from pack.deep import table
scratch = pathlib.Path(os.environ["SCRATCH"], "written")
scratch.write_text("x")
print(tiny.WORD, table.WORD, os.environ["PASSWORD"], os.environ["MINE"], sys.argv[1:], flush=True)
"""


def count(last: int, failing: bool) -> None:
    """Train, as each worker of the function's job does."""
    import elasticjob

    print(f"rank {elasticjob.world().rank} of {elasticjob.world().size}, {WORD}", flush=True)
    for step in range(last):
        elasticjob.report_step(step + 1, total=last)
    if failing:
        raise ValueError("no luck")


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[Client]:
    with Client(namespace=sandbox.namespace, kubeconfig=sandbox.cluster.kubeconfig) as made:
        yield made


@pytest.fixture
def same_python(sandbox: Sandbox) -> None:
    """Skip if the image's Python differs from this machine's, whose byte code the function is."""
    if not sandbox.cluster.real:
        return
    version = "import sys; print(*sys.version_info[:2])"
    sandbox.kubectl(
        "run",
        "version",
        f"--image={images.PYTHON}",
        "--restart=Never",
        "--",
        "python",
        "-c",
        version,
    )
    sandbox.kubectl(
        "wait", "pod/version", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"
    )
    found = sandbox.kubectl("logs", "version").split()
    ours = [str(number) for number in sys.version_info[:2]]
    if found != ours:
        pytest.skip(
            f"ELASTICJOB_PYTHON_IMAGE has Python {'.'.join(found)}, "
            f"and this machine {'.'.join(ours)}"
        )


@pytest.mark.guarantee("submitted-files-reach-pods")
@pytest.mark.thorough
def test_a_submitted_script_is_scaled_by_python_and_its_history_is_readable(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = [f"--image={images.PYTHON}", "--workers=2:4", "--follow", "--", str(tmp_path)]
    command = CommandLineUser(sandbox).command("submit", str(tmp_path / "train.py"), *options)
    with (tmp_path / "out").open("w") as out:
        following = subprocess.Popen(command, stdout=out)
    submitted = r"job (train) is submitted; elasticjob logs -f train follows it\n"
    match = wait_until(
        "the job's name", lambda: re.match(submitted, (tmp_path / "out").read_text())
    )
    assert match is not None
    job = client.get(match[1])
    assert job.wait("running", timeout=60).wait("step=5", timeout=60).phase == "Running"
    wait_until("both workers", lambda: job.refresh().status.workers, lambda found: found == "2/2")
    assert job.last_seen.spec.replica_specs["worker"].max_replicas == 4
    plan = job.scale(3, wait=True, timeout=60)
    assert [(each.metadata.name, each.status.change) for each in job.plans()] == [
        (plan, "worker 2 to 3")
    ]
    with pytest.raises(ClientError, match="maxReplicas 4"):
        job.scale("+5", wait=True, timeout=60)
    wait_until(
        "a sample of three", lambda: any(each["world_size"] == 3 for each in samples(job.history()))
    )
    with job.dashboard() as dashboard, urllib.request.urlopen(dashboard.url, timeout=20) as answer:
        assert b"<title>" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(dashboard.url, timeout=20)
    assert [each.name for each in client.list(phase="running")] == [job.name]
    wait_until("its event", lambda: "ScalingSucceeded" in {event.reason for event in job.events()})
    words = {("worker", f"rank {rank} of 3") for rank in range(3)}
    wait_until(
        "each rank's words",
        lambda: {(each.role, each.text) for each in job.logs(every=True)},
        words.issubset,
    )
    finish(sandbox, job.name, tmp_path)
    assert job.wait(timeout=60).phase == "Succeeded"
    assert following.wait(60) == 0
    # The master stores its last sample a moment after the end.
    report = wait_until(
        "the report", job.report, lambda found: found["outcome"]["phase"] == "Succeeded"
    )
    wait_until(
        "its history",
        lambda: {each["world_size"] for each in samples(job.history())},
        {2, 3}.issubset,
    )
    assert report["step"] > 5
    assert 0 < report["goodput"] <= 1
    assert "] rank 0 of 3\n" in (tmp_path / "out").read_text()
    with pytest.raises(JobEnded):
        job.suspend()
    assert "Succeeded" in job._repr_html_()
    job.delete()
    with pytest.raises(NoSuchObject):
        job.refresh()


@pytest.mark.embedded_only("its package is a file of this machine")
@pytest.mark.guarantee("packages-are-installed-at-the-start")
@pytest.mark.guarantee("namespace-defaults")
@pytest.mark.guarantee("submitted-files-reach-pods")
def test_a_script_runs_with_its_packages_folders_secrets_volumes_and_the_namespaces_defaults(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(EVERYTHING)
    (tmp_path / "pack" / "deep").mkdir(parents=True)
    (tmp_path / "pack" / "deep" / "table.py").write_text("WORD = 'table'\n")
    sandbox.kubectl("create", "secret", "generic", "registry", "--from-literal=password=secret")
    defaults = {
        "env": "MINE=theirs\nSCRATCH=/scratch/here",
        "env-secret": "PASSWORD=registry/password",
        "volume": "empty:1Gi:/scratch/here",
    }
    literals = [f"--from-literal={name}={text}" for name, text in defaults.items()]
    sandbox.kubectl("create", "configmap", "elasticjob-defaults", *literals)
    options = [f"--image={images.PYTHON}", "--workers=2", "--env=MINE=mine", "--shared-memory=64Mi"]
    options += [f"--pip={tiny_wheel(tmp_path)}", f"--dir={tmp_path / 'pack'}"]
    user = CommandLineUser(sandbox)
    done = user.run("submit", str(tmp_path / "train.py"), *options, "--", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    sandbox.kubectl("wait", "ej/train", ended, "--timeout=240s")
    assert "] tiny table secret mine ['--epochs', '1']\n" in user.out("logs", "train", "--all")
    where = f"ConfigMap {sandbox.namespace}/elasticjob-defaults"
    assert f"with defaults of {where}: env, env-secret, volume\n" in done.stderr


@pytest.mark.guarantee("pods-that-cannot-start")
@pytest.mark.thorough
def test_a_job_whose_files_do_not_exist_says_so_until_they_do(sandbox: Sandbox) -> None:
    """That is how a `submit` leaves the job if it is killed before it creates the ConfigMap."""
    job = yaml.safe_load(starter("custom", name="late", template=JobTemplate(image=images.TRAINER)))
    worker = job["spec"]["replicaSpecs"]["worker"] | {"replicas": 1}
    pod = worker["template"]["spec"]
    pod["volumes"] = [{"name": "files", "configMap": {"name": "late-files"}}]
    mount = {"name": "files", "mountPath": "/etc/late"}
    pod["containers"][0] |= {
        "command": ["ls", "/etc/late"],
        "resources": {},
        "volumeMounts": [mount],
    }
    job["spec"]["replicaSpecs"]["worker"] = worker
    sandbox.apply(job)
    wait_until(
        "the reason in the condition",
        lambda: sandbox.kubectl("get", "ej/late", "-o", "jsonpath={.status.conditions}"),
        lambda text: "late-worker-0: it mounts ConfigMap late-files; create what" in text,
    )
    sandbox.kubectl("create", "configmap", "late-files", "--from-literal=a=b")
    sandbox.kubectl("wait", "ej/late", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")


@pytest.mark.thorough
def test_following_a_failing_job_prints_its_output_and_returns_its_exit_code(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    job = yaml.safe_load(
        starter("custom", name="fails", template=JobTemplate(image=images.TRAINER))
    )
    worker = job["spec"]["replicaSpecs"]["worker"] | {"replicas": 1, "restartLimit": 0}
    container = worker["template"]["spec"]["containers"][0]
    container["command"] = [
        "python",
        "-c",
        "import time; print('no luck', flush=True); time.sleep(2); raise SystemExit(9)",
    ]
    container["resources"] = {}
    job["spec"]["replicaSpecs"]["worker"] = worker
    done = CommandLineUser(sandbox).run("submit", "-", "--follow", stdin=yaml.safe_dump(job))
    assert done.returncode == 3
    assert "] no luck\n" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(
        f"error: job {sandbox.namespace}/fails has ended, as Failed: worker 0"
    )


@pytest.mark.parametrize(
    ("line", "error"),
    some_of(
        [
            pytest.param("import module_that_no_image_has", "ModuleNotFoundError: No module named"),
            pytest.param("for rank in", "SyntaxError: invalid syntax"),
        ],
        first=1,
    ),
)
def test_a_submitted_script_that_cannot_start_fails_without_a_restart(
    sandbox: Sandbox, tmp_path: Path, line: str, error: str
) -> None:
    (tmp_path / "train.py").write_text(f"{line}\n")
    options = [f"--image={images.TRAINER}", "--workers=2", "--framework=jax", "--follow"]
    done = CommandLineUser(sandbox).run("submit", str(tmp_path / "train.py"), *options)
    assert done.returncode == 3, done.stderr
    status = json.loads(sandbox.kubectl("get", "ej/train", "-o", "json"))["status"]
    assert status["phase"] == "Failed"
    assert error in status["message"]
    assert status.get("restarts", 0) == 0, status


def finish(sandbox: Sandbox, job: str, folder: Path) -> None:
    """Let each worker's script end, wherever it has its files.

    If workers share their files, the first one ends all.
    """
    mine = f"{names.LABEL_JOB_NAME}={job},{names.LABEL_ROLE}={names.ROLE_WORKER}"
    for pod in sandbox.kubectl("get", "pods", "-l", mine, "-o", "name").split():
        sandbox.kubectl(
            "exec", pod, "--", "sh", "-c", f"mkdir -p {folder}; : > {folder}/finish", check=False
        )


def samples(history: object) -> list[dict[str, float]]:
    """Return the samples of a history, also of a DataFrame."""
    if isinstance(history, list):
        return history
    found: list[dict[str, float]] = history.to_dict("records")  # type: ignore[attr-defined]
    return found


@pytest.mark.guarantee("submitted-files-reach-pods")
async def test_a_function_runs_in_each_worker_and_its_error_is_the_pods_message(
    sandbox: Sandbox, same_python: None
) -> None:
    async with AsyncClient(
        namespace=sandbox.namespace, kubeconfig=sandbox.cluster.kubeconfig
    ) as client:
        good = await client.train(
            count, fn_args=(20, False), image=images.PYTHON, workers=(2, 2), name="good"
        )
        bad = await client.train(count, fn_args=(1, True), image=images.PYTHON, name="bad")
        followed = [line.text async for line in good.logs(follow=True, every=True)]
        assert {"rank 0 of 2, of the module", "rank 1 of 2, of the module"} <= set(followed)
        await good.wait(timeout=90)
        with Client(namespace=sandbox.namespace, kubeconfig=sandbox.cluster.kubeconfig) as twin:
            assert twin.get("good").phase == "Succeeded", (
                "a client without a loop works where one runs"
            )

        async def last_words() -> str:
            return next((failure.message for failure in (await bad.refresh()).status.failures), "")

        await until(
            "the last words of the worker",
            last_words,
            lambda words: words.endswith("ValueError: no luck"),
        )
        await asyncio.gather(good.delete(), bad.delete())
        await other_python_ends_the_job(sandbox, client)

    async def scripts() -> list[str]:
        found = await sandbox.kube.list(CONFIG_MAPS, sandbox.namespace)
        return [
            each["metadata"]["name"]
            for each in found["items"]
            if "-script-" in each["metadata"]["name"]
        ]

    await until("the functions to go with their jobs", scripts, lambda left: not left)


async def other_python_ends_the_job(sandbox: Sandbox, client: AsyncClient) -> None:
    """Submit a function as from another Python: the job fails at once, with the reason."""
    counting = program(count, (1, False))
    about = json.loads(counting.files["function.json"])
    other = {"function.json": json.dumps({**about, "python": [3, 8]}).encode()}
    changed = replace(counting, files={**counting.files, **other})
    wanted = of_program(changed, JobTemplate(image=images.PYTHON), name="old")
    await submit(Session(sandbox.kube, sandbox.namespace), wanted)
    status = (await (await client.get("old")).wait("failed", timeout=60)).last_seen.status
    assert "the function comes from Python 3.8" in status.message
    assert status.restarts == 0
    await (await client.get("old")).delete()
