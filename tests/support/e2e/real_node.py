"""Shared by the tests of a real node: jobs for any cluster, and a record of pod changes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e import images
from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import of_workers
from tests.support.wait import wait_until

COUNTING = Path(__file__).with_name("counting_training.py")
_PLAIN_RESOURCES = {"cpu": "200m", "memory": "128Mi"}
RESOURCES = {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}


def counting_job(name: str, *, replicas: int = 1, steps: int = 10**6, **container: Any) -> Json:
    """Return a job whose workers count steps; `container` overrides fields of its one container."""
    command = ["python", "-c", COUNTING.read_text(), str(steps)]
    main = {
        "name": "train",
        "image": images.TRAINER,
        "command": command,
        "resources": RESOURCES,
        **container,
    }
    return of_workers(name, {"containers": [main]}, replicas=replicas)


def plain_job(image: str, command: list[str], **spec: object) -> Json:
    """Return a job of two workers that runs a command in an image without this project.

    It begins with both workers, however late one of them is. One of its variables breaks loaders.
    """
    container = {
        "name": "train",
        "image": image,
        "command": command,
        "env": [{"name": "LD_PRELOAD", "value": "/not/there.so"}, {"name": "MINE", "value": "1"}],
        "resources": {"requests": _PLAIN_RESOURCES, "limits": _PLAIN_RESOURCES},
    }
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 2, "drainSeconds": 5}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": "plain"},
        "spec": {
            "framework": "custom",
            "runPolicy": {"cleanPodPolicy": "None", "startPolicy": "AllReady"},
            "replicaSpecs": {
                "worker": {**worker, "template": {"spec": {"containers": [container], **spec}}}
            },
        },
    }


def start_job(sandbox: Sandbox, job: Json) -> tuple[KubectlUser, dict[str, str]]:
    """Apply a job and wait until all its workers train.

    Return its user, and name and UID of the workers.
    """
    user = KubectlUser(sandbox, job["metadata"]["name"])
    sandbox.apply(job)
    size = job["spec"]["replicaSpecs"]["worker"]["replicas"]
    user.until(f"{size} workers", lambda: user.at_rest(size))
    wait_for_progress(user)
    return user, user.pods()


def wait_for_progress(user: KubectlUser) -> None:
    """Wait until the job's status has a later step than now."""

    def step() -> int:
        found: int = user.status().get("progress", {}).get("step", 0)
        return found

    before = step()
    user.until(f"a step beyond {before}", lambda: step() > before)


def container(user: KubectlUser, pod: str) -> Json:
    """Return the status of a pod's training container."""
    found: Json = user.status(f"pod/{pod}")["containerStatuses"][0]
    return found


def limit_by_default(sandbox: Sandbox, **defaults: Json) -> None:
    """Give the namespace a LimitRange for containers."""
    spec = {"limits": [{"type": "Container", **defaults}]}
    sandbox.apply(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": spec}
    )


class PodRecorder:
    """Records every event of a watch of the namespace's pods, in order."""

    def __init__(self, record: Path) -> None:
        self._record = record

    def states(self, job: str) -> list[tuple[str, Json]]:
        """Return the events of a job's workers: ADDED, MODIFIED or DELETED, and the pod."""
        text = self._record.read_text()
        at = 0
        found = []
        decoder = json.JSONDecoder()
        while at < len(text):
            try:
                event, at = decoder.raw_decode(text, at)
            except ValueError:
                break  # the rest is still being written
            at += len(text[at:]) - len(text[at:].lstrip())
            labels = event["object"]["metadata"]["labels"]
            if (labels.get(names.LABEL_JOB_NAME), labels.get(names.LABEL_ROLE)) == (
                job,
                names.ROLE_WORKER,
            ):
                found.append((event["type"], event["object"]))
        return found

    def terminations(self, job: str) -> dict[str, Json]:
        """Return the terminated states of a job's training containers, by pod name."""
        return {
            pod["metadata"]["name"]: status["state"]["terminated"]
            for _, pod in self.states(job)
            for status in pod["status"].get("containerStatuses", [])[:1]
            if "terminated" in status["state"]
        }

    def assert_one_pod_per_index(self, job: str) -> None:
        """Assert that each index got its next pod only after the last one was over."""
        alive: dict[str, set[str]] = {}
        for kind, pod in self.states(job):
            of_index = alive.setdefault(pod["metadata"]["labels"][names.LABEL_INDEX], set())
            name = pod["metadata"]["name"]
            if kind == "DELETED" or pod["status"]["phase"] in ("Succeeded", "Failed"):
                of_index.discard(name)
            else:
                of_index.add(name)
            assert len(of_index) < 2, f"two pods of one rank: {sorted(of_index)}"


@contextmanager
def record_pods(sandbox: Sandbox, folder: Path) -> Iterator[PodRecorder]:
    """Watch the pods of a test's namespace from its beginning, however late kubectl starts."""
    record = folder / "pods.json"
    path = f"/api/v1/namespaces/{sandbox.namespace}/pods"
    listed = json.loads(sandbox.kubectl("get", "--raw", path))
    record.write_text(
        "".join(json.dumps({"type": "ADDED", "object": pod}) + "\n" for pod in listed["items"])
    )
    since = f"{path}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
    with recorded(sandbox, record, "get", "--raw", since):
        yield PodRecorder(record)


@contextmanager
def follow_logs(sandbox: Sandbox, folder: Path, pod: str) -> Iterator[Callable[[], str]]:
    """Follow the log of a pod that has written something, to be read after the pod was deleted.

    Yields a function that returns all of it.
    """
    record = folder / f"{pod}.log"
    record.touch()
    with recorded(sandbox, record, "logs", "--follow", pod):
        wait_until(f"the log of {pod} is followed", record.read_text)
        yield record.read_text


@contextmanager
def recorded(sandbox: Sandbox, record: Path, *arguments: str) -> Iterator[None]:
    """Append kubectl's output to a file while in the block."""
    with record.open("ab") as output:
        following = subprocess.Popen(sandbox.command(*arguments), stdout=output)
        try:
            yield
        finally:
            following.terminate()
            following.wait(timeout=10)
