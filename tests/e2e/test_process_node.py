"""Checks the process node's promises on a real control plane, by kubectl."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from elasticjob_api.meta import Json

from tests.support.e2e.second_node import SecondNode
from tests.support.e2e.target_cluster import TargetCluster
from tests.support.wait import wait_until

pytestmark = pytest.mark.embedded_only("these are guarantees of the process node")


@dataclass
class Space:
    """A fresh namespace and kubectl in it."""

    cluster: TargetCluster
    name: str

    def command(self, *arguments: str) -> list[str | Path]:
        """Return the command line of kubectl in the namespace."""
        return self.cluster.command("-n", self.name, *arguments)

    def kubectl(self, *arguments: str, body: Json | None = None, check: bool = True) -> str:
        stdin = None
        if body:
            stdin = json.dumps(body)
        return self.cluster.kubectl("-n", self.name, *arguments, stdin=stdin, check=check)

    def pod(
        self, name: str, command: list[str] | None, *, spec: Json | None = None, **container: Any
    ) -> None:
        """Create a pod of one container `main`."""
        main = (
            {"name": "main", "image": "unused"}
            | ({"command": command} if command else {})
            | container
        )
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "containers": [main],
            }
            | (spec or {}),
        }
        self.create(body)

    def shell(self, name: str, script: str, *, spec: Json | None = None, **container: Any) -> None:
        self.pod(name, ["sh", "-c", script], spec=spec, **container)

    def create(self, body: Json) -> None:
        answer = self.kubectl("create", "-f", "-", body=body, check=False)
        assert "created" in answer, answer

    def get(self, name: str, kind: str = "pod") -> Json:
        return self.cluster.reader.get(self.name, f"{kind}/{name}")

    def until(self, name: str, holds: Callable[[Json], Any]) -> Json:
        """Wait until a pod's status meets a condition; return the status."""

        def status() -> Json:
            return dict(self.get(name).get("status", {}))

        return wait_until(
            f"what is waited for of pod {name}",
            status,
            holds,
            explain=lambda: (
                self.kubectl("describe", "pod", name, check=False)
                + self.kubectl("get", "pod", name, "-o", "yaml")
            ),
        )

    def phase(self, name: str, phase: str) -> Json:
        return self.until(name, lambda status: status.get("phase") == phase)

    def ended(self, name: str) -> Json:
        """Wait until a pod has ended, and return how its container ended."""
        status = self.until(name, lambda status: status.get("phase") in ("Succeeded", "Failed"))
        answer: Json = status["containerStatuses"][0]["state"]["terminated"]
        return answer

    def logs(self, name: str, *arguments: str) -> str:
        return self.kubectl("logs", name, *arguments)

    def output(self, name: str, script: str, **more: Any) -> str:
        """Run a script to its end, and return its output."""
        self.shell(name, script, **more)
        self.ended(name)
        return self.logs(name)

    def events(self, name: str) -> list[Json]:
        items = self.cluster.reader.items(self.name, "event")
        return [item for item in items if item["involvedObject"]["name"] == name]

    def event(self, name: str, reason: str) -> Json:
        found = wait_until(
            f"an event {reason} of {name}",
            lambda: [item for item in self.events(name) if item["reason"] == reason],
            explain=lambda: str(self.events(name)),
        )
        return found[0]


@pytest.fixture
def space(cluster: TargetCluster, namespace: str) -> Space:
    return Space(cluster, namespace)


def main(status: Json) -> Json:
    """Return the details of the first container's present state."""
    containers = status.get("containerStatuses") or [{}]
    state: Json = containers[0].get("state", {})
    return state


def waiting(status: Json) -> str:
    reason: str = main(status).get("waiting", {}).get("reason", "")
    return reason


def condition(status: Json, kind: str) -> Json:
    return next((item for item in status.get("conditions", ()) if item["type"] == kind), {})


def living(cookie: str) -> list[int]:
    """Return the processes that have this argument on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and cookie in (
            process.info["cmdline"] or ()
        ):
            found.append(process.pid)
    return found


# --- running


@pytest.mark.thorough
def test_logs_can_be_followed_while_the_container_runs_and_read_afterwards(
    space: Space, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    space.shell(
        "talker", f"echo one; echo two >&2; until [ -e {gate} ]; do sleep 0.05; done; printf three"
    )
    space.phase("talker", "Running")
    with subprocess.Popen(
        space.command("logs", "-f", "talker"), stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout
        assert [follower.stdout.readline(), follower.stdout.readline()] == ["one\n", "two\n"]
        gate.touch()
        assert follower.stdout.read() == "three"
    assert follower.returncode == 0
    space.ended("talker")
    assert space.logs("talker") == "one\ntwo\nthree"
    assert space.logs("talker", "--tail=2") == "two\nthree"
    assert space.logs("talker", "--limit-bytes=5") == "one\nt"
    assert space.logs("talker", "--timestamps").splitlines()[0].endswith("Z one")


def test_the_exit_code_and_the_termination_message_are_reported(space: Space) -> None:
    space.shell("three", 'echo "out of data" > "$TERMINATION_LOG"; exit 3')
    ended = space.ended("three")
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "out of data\n")


def test_the_end_of_the_log_is_the_message_if_the_policy_says_so(space: Space) -> None:
    space.shell("sad", "echo all is lost; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
    assert space.ended("sad")["message"] == "all is lost\n"


def test_a_missing_command_is_reported_as_a_start_error_that_names_it(space: Space) -> None:
    space.pod("typo", ["no-such-program"])
    ended = space.ended("typo")
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]


def test_a_container_over_its_memory_limit_is_oom_killed(space: Space) -> None:
    script = "import time; data = bytearray(200 << 20); time.sleep(60)"
    space.pod("glutton", ["python", "-c", script], resources={"limits": {"memory": "64Mi"}})
    ended = space.ended("glutton")
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_a_failed_container_is_restarted_until_it_succeeds_and_its_last_log_is_kept(
    space: Space,
) -> None:
    script = "echo try $(date +%s%N); if [ -e done ]; then exit 0; fi; touch done; exit 7"
    space.shell("again", script, spec={"restartPolicy": "OnFailure"})
    status = space.phase("again", "Succeeded")["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert space.logs("again", "--previous") != space.logs("again")


@pytest.mark.thorough
def test_restarts_of_a_crashing_container_are_backed_off(space: Space) -> None:
    space.shell("crash", "exit 1", spec={"restartPolicy": "Always"})
    status = space.until("crash", lambda status: waiting(status) == "CrashLoopBackOff")
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    space.event("crash", "BackOff")


def test_init_containers_run_in_order_before_the_others_in_one_working_directory(
    space: Space,
) -> None:
    init = [
        {"name": name, "image": "unused", "command": ["sh", "-c", f"echo {name} >> order"]}
        for name in ("first", "second")
    ]
    assert space.output("ordered", "cat order", spec={"initContainers": init}) == "first\nsecond\n"
    assert condition(space.get("ordered")["status"], "Initialized")["status"] == "True"


def test_a_failed_init_container_fails_the_pod(space: Space) -> None:
    init = [{"name": "first", "image": "unused", "command": ["sh", "-c", "exit 4"]}]
    space.shell("doomed", "echo never", spec={"initContainers": init})
    status = space.phase("doomed", "Failed")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert waiting(status) == "PodInitializing"


@pytest.mark.thorough
def test_processes_that_a_container_leaves_end_with_it(space: Space) -> None:
    cookie = f"4242{uuid.uuid4().int % 10**6}"
    space.shell(
        "parent",
        f"setsid sleep {cookie} & sleep {cookie} & "
        f"setsid setsid sh -c 'sleep {cookie}' & sleep 0.3",
    )
    space.ended("parent")
    wait_until("its processes have ended", lambda: living(cookie), lambda pids: not pids)


@pytest.mark.thorough
def test_a_pod_past_its_deadline_fails_with_that_reason(space: Space) -> None:
    space.shell("slow", "sleep 60", spec={"activeDeadlineSeconds": 1})
    assert space.phase("slow", "Failed")["reason"] == "DeadlineExceeded"


# --- environment


@pytest.mark.thorough
def test_a_container_that_must_wait_does_not_delay_the_others(space: Space) -> None:
    env = [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "never", "key": "word"}}}]
    containers = [
        {"name": "stuck", "image": "unused", "command": ["true"], "env": env},
        {"name": "free", "image": "unused", "command": ["sh", "-c", "exit 5"]},
    ]
    space.pod("mixed", None, spec={"containers": containers})

    def free(status: Json) -> Json:
        states = {item["name"]: item["state"] for item in status.get("containerStatuses", ())}
        return dict(states.get("free", {}).get("terminated", {}))

    status = space.until("mixed", free)
    assert free(status)["exitCode"] == 5
    assert {"stuck": "CreateContainerConfigError"}.items() <= {
        item["name"]: item["state"].get("waiting", {}).get("reason")
        for item in status["containerStatuses"]
    }.items()


def test_the_environment_has_fields_resources_references_and_services(space: Space) -> None:
    ports = [{"name": "grpc", "port": 80, "targetPort": 9000}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "job-master"}}
    space.create(service | {"spec": {"selector": {"app": "job-master-1"}, "ports": ports}})
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {
            "name": "MEMORY",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        },
        {
            "name": "MASTER",
            "value": "$(JOB_MASTER_SERVICE_HOST):$(JOB_MASTER_SERVICE_PORT) $(NONE) $$(IP)",
        },
    ]
    script = 'echo "$IP $APP $MEMORY"; echo "$MASTER"; echo "$HOSTNAME"'
    more = {"env": env, "resources": {"limits": {"memory": "512Mi"}}}
    lines = space.output("worker", script, **more).splitlines()
    space.shell("job-master-1", "sleep 60", spec={"hostname": "job-master"})
    address = space.phase("job-master-1", "Running")["podIP"]
    own = space.get("worker")["status"]["podIP"]
    assert lines == [f"{own} worker 512", f"{address}:9000 $(NONE) $(IP)", "worker"]
    assert own.startswith("127.")
    assert own != address
    space.kubectl("delete", "service", "job-master")
    again = space.output("later", 'echo "$MASTER"', **more)
    assert again.startswith(address), "it may be restored, and no name server could be asked then"


@pytest.mark.thorough
def test_a_relaunched_pod_of_the_same_host_name_has_the_same_address(space: Space) -> None:
    addresses = []
    for name in ("master-1", "master-2"):
        space.shell(name, "sleep 60", spec={"hostname": "master"})
        addresses.append(space.phase(name, "Running")["podIP"])
        space.kubectl("delete", "pod", name)
    assert addresses[0] == addresses[1]


@pytest.mark.thorough
def test_a_container_waits_for_a_secret_that_appears_late(space: Space) -> None:
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "late", "key": "word"}}}]
    space.shell("patient", "echo $WORD", env=env)
    status = space.until("patient", lambda status: waiting(status) == "CreateContainerConfigError")
    assert main(status)["waiting"]["message"] == 'secret "late" not found'
    data = {"word": base64.b64encode(b"open sesame").decode()}
    space.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}, "data": data})
    space.phase("patient", "Succeeded")
    assert space.logs("patient") == "open sesame\n"


@pytest.mark.thorough
def test_a_container_waits_for_a_config_map_and_reads_its_files_at_their_paths(
    space: Space,
) -> None:
    chosen = {
        "name": "files",
        "items": [{"key": "text", "path": "below/renamed"}, {"key": "bytes", "path": "bytes"}],
    }
    volumes = [{"name": "late", "configMap": chosen}]
    mounts = [{"name": "late", "mountPath": "/etc/late/"}]
    script = "cat /etc/late/below/renamed; od -An -tx1 /etc/late/bytes; ls /etc/late"
    space.shell("reader", script, spec={"volumes": volumes}, volumeMounts=mounts)
    error = 'MountVolume.SetUp failed for volume "late": configmap "files" not found'
    wait_until("the event FailedMount", lambda: error in space.kubectl("get", "events"))
    status = space.get("reader")["status"]
    assert waiting(status) == "ContainerCreating"
    assert {
        each["status"]
        for each in status["conditions"]
        if each["type"] == "PodReadyToStartContainers"
    } == {"False"}
    content = {
        "data": {"text": "hello\n", "other": "x"},
        "binaryData": {"bytes": base64.b64encode(b"\xff").decode()},
    }
    space.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, **content}
    )
    assert space.ended("reader")["exitCode"] == 0
    assert space.logs("reader").split() == ["hello", "ff", "below", "bytes"]


@pytest.mark.thorough
def test_the_service_account_token_works_through_kubeconfig(space: Space) -> None:
    kubectl = space.cluster.bin / "kubectl"
    who = space.output(
        "caller", f"{kubectl} auth whoami -o jsonpath='{{.status.userInfo.username}}'"
    )
    assert who == f"system:serviceaccount:{space.name}:default"
    without = space.output(
        "silent", 'echo "[$KUBECONFIG]"', spec={"automountServiceAccountToken": False}
    )
    assert without == "[]\n"


# --- probes


@pytest.mark.thorough
def test_readiness_follows_its_probe_and_liveness_restarts(space: Space, tmp_path: Path) -> None:
    probe = {
        "exec": {"command": ["test", "-e", "ready"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    gate = tmp_path / "gate"
    space.shell(
        "probed",
        f"until [ -e {gate} ]; do sleep 0.05; done; touch ready; sleep 60",
        readinessProbe=probe,
    )
    space.until(
        "probed", lambda status: condition(status, "Ready").get("reason") == "ContainersNotReady"
    )
    gate.touch()
    space.until("probed", lambda status: condition(status, "Ready").get("status") == "True")
    alive = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    space.shell("dying", "sleep 60", livenessProbe=alive, spec={"restartPolicy": "OnFailure"})
    space.until(
        "dying",
        lambda status: (status.get("containerStatuses") or [{}])[0].get("restartCount", 0) > 0,
    )
    space.event("dying", "Unhealthy")


@pytest.mark.thorough
def test_http_and_tcp_probes_reach_the_pods_own_address(space: Space) -> None:
    serve = (
        "import os; from http.server import HTTPServer, SimpleHTTPRequestHandler;"
        "HTTPServer((os.environ['IP'], 8765), SimpleHTTPRequestHandler).serve_forever()"
    )
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    ports = [{"name": "web", "containerPort": 8765}]
    probes = {
        "startupProbe": {"tcpSocket": {"port": 8765}, "periodSeconds": 1, "failureThreshold": 30},
        "readinessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1},
    }
    space.pod("web", ["python", "-c", serve], env=env, ports=ports, **probes)
    space.until("web", lambda status: condition(status, "Ready").get("status") == "True")


@pytest.mark.thorough
def test_a_grpc_probe_asks_the_health_service(space: Space) -> None:
    serve = (
        "import os, grpc, concurrent.futures\n"
        "from grpc_health.v1 import health, health_pb2, health_pb2_grpc\n"
        "server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))\n"
        "servicer = health.HealthServicer()\n"
        "servicer.set('jobs', health_pb2.HealthCheckResponse.SERVING)\n"
        "health_pb2_grpc.add_HealthServicer_to_server(servicer, server)\n"
        "server.add_insecure_port(os.environ['IP'] + ':8766')\n"
        "server.start()\nserver.wait_for_termination()\n"
    )
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    good = {"grpc": {"port": 8766, "service": "jobs"}, "periodSeconds": 1, "timeoutSeconds": 5}
    bad = {"grpc": {"port": 8766, "service": "unknown"}, "periodSeconds": 1, "timeoutSeconds": 5}
    space.pod("healthy", ["python", "-c", serve], env=env, readinessProbe=good)
    space.pod("unknown", ["python", "-c", serve], env=env, readinessProbe=bad)
    space.until("healthy", lambda status: condition(status, "Ready").get("status") == "True")
    space.until("unknown", lambda status: main(status).get("running"))
    assert "NOT_FOUND" in message_of_event(space, "unknown", "Unhealthy", "NOT_FOUND")


def message_of_event(space: Space, name: str, reason: str, text: str) -> str:
    """Wait for an event that has a text in its message."""
    found = wait_until(
        f"an event {reason} with {text}",
        lambda: [
            e["message"]
            for e in space.events(name)
            if e["reason"] == reason and text in e["message"]
        ],
        explain=lambda: str(space.events(name)),
    )
    return str(found[0])


# --- deletion


def test_a_deleted_container_may_end_by_itself(space: Space, tmp_path: Path) -> None:
    said = tmp_path / "said"
    up = tmp_path / "up"
    space.shell(
        "polite",
        f"trap 'echo farewell > {said}; exit 0' TERM; touch {up}; while :; do sleep 0.05; done",
    )
    wait_until("it takes signals", up.exists)
    space.until("polite", lambda status: main(status).get("running"))
    with watching(space, "polite") as seen:
        space.kubectl("delete", "pod", "polite")
        statuses = seen()
    assert said.read_text() == "farewell\n"
    assert statuses[-1]["phase"] == "Succeeded"
    assert main(statuses[-1])["terminated"]["exitCode"] == 0


@pytest.mark.thorough
def test_a_pod_that_never_started_can_be_deleted_with_a_final_status(space: Space) -> None:
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "never", "key": "word"}}}]
    space.shell("unborn", "true", env=env)
    space.until("unborn", lambda status: waiting(status) == "CreateContainerConfigError")
    with watching(space, "unborn") as seen:
        space.kubectl("delete", "pod", "unborn")
        statuses = seen()
    assert statuses[-1]["phase"] == "Failed"
    assert main(statuses[-1])["terminated"]["reason"] == "ContainerStatusUnknown"


def test_a_container_that_ignores_sigterm_is_killed_after_its_grace_period(
    space: Space,
) -> None:
    cookie = f"4343{uuid.uuid4().int % 10**6}"
    script = f"trap '' TERM; sleep {cookie} & wait; while :; do sleep 1; done"
    space.shell("stubborn", script, spec={"terminationGracePeriodSeconds": 1})
    wait_until("it has started", lambda: living(cookie))
    with watching(space, "stubborn") as seen:
        space.kubectl("delete", "pod", "stubborn")
        statuses = seen()
    assert main(statuses[-1])["terminated"]["exitCode"] == 137
    assert statuses[-1]["phase"] == "Failed"
    assert not living(cookie)


class watching:
    """Collect the statuses of a pod until it is deleted."""

    def __init__(self, space: Space, name: str) -> None:
        command = space.command(
            "get", "pod", name, "--watch", "--output-watch-events", "-o", "json"
        )
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Callable[[], list[Json]]:
        assert self.process.stdout
        self.lines = self.process.stdout
        self.decoder = json.JSONDecoder()
        self.text = self.lines.readline()
        return self.read

    def read(self) -> list[Json]:
        statuses: list[Json] = []
        while True:
            try:
                event, end = self.decoder.raw_decode(self.text.lstrip())
            except json.JSONDecodeError:
                line = self.lines.readline()
                assert line, "the watch ended before the pod was deleted"
                self.text += line
                continue
            self.text = self.text.lstrip()[end:]
            if event["type"] == "DELETED":
                return statuses
            statuses.append(event["object"]["status"])

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)
        self.lines.close()


# --- resize


def resize(space: Space, name: str, **resources: Json) -> None:
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    space.kubectl("patch", "pod", name, "--subresource=resize", "--patch", json.dumps(patch))


def test_memory_can_be_resized_in_place_and_the_new_limit_is_enforced(
    space: Space, tmp_path: Path
) -> None:
    script = (
        f"import os, time\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.05)\n"
        "data = bytearray(100 << 20)\ntime.sleep(60)"
    )
    space.pod(
        "grower",
        ["python", "-c", script],
        resources={"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}},
    )
    started = main(space.phase("grower", "Running"))
    resize(space, "grower", limits={"memory": "400Mi"}, requests={"memory": "400Mi"})

    def resized(status: Json) -> bool:
        container = status["containerStatuses"][0]
        limits = container.get("resources", {}).get("limits")
        return bool(
            limits == {"memory": "400Mi"} and container["allocatedResources"] == {"memory": "400Mi"}
        )

    status = space.until("grower", resized)
    assert main(status) == started
    assert status["observedGeneration"] == space.get("grower")["metadata"]["generation"]
    (tmp_path / "go").touch()
    pid = wait_until("the process has grown", lambda: pid_of_large_process(script))
    # A limit below the usage is not enforced by killing: the resize waits, and reports why.
    resize(space, "grower", limits={"memory": "80Mi"}, requests={"memory": "80Mi"})
    status = space.until(
        "grower", lambda status: condition(status, "PodResizeInProgress").get("reason") == "Error"
    )
    assert "below current usage" in condition(status, "PodResizeInProgress")["message"]
    assert psutil.pid_exists(pid)


def pid_of_large_process(script: str) -> int:
    for process in psutil.process_iter(["cmdline", "memory_info"]):
        if (
            process.info["cmdline"]
            and script in process.info["cmdline"]
            and process.info["memory_info"].rss > 100 << 20
        ):
            return int(process.pid)
    return 0


@pytest.mark.thorough
def test_a_resize_that_requires_a_restart_restarts_after_any_exit_code(space: Space) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    script = "trap 'exit 0' TERM; touch trapped; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-e", "trapped"]}, "periodSeconds": 1}
    more: Json = {
        "resizePolicy": policy,
        "readinessProbe": probe,
        "spec": {"restartPolicy": "OnFailure"},
    }
    space.shell("reborn", script, resources={"limits": {"memory": "64Mi"}}, **more)
    space.until("reborn", lambda status: condition(status, "Ready").get("status") == "True")
    resize(space, "reborn", limits={"memory": "128Mi"})

    def restarted(status: Json) -> bool:
        container = status["containerStatuses"][0]
        return bool(
            container["restartCount"] == 1
            and container["resources"]["limits"] == {"memory": "128Mi"}
        )

    status = space.until("reborn", restarted)
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 0


@pytest.mark.thorough
def test_a_resize_without_room_is_done_once_the_node_has_room(
    space: Space, second_node: SecondNode
) -> None:
    for state in ("create", "condition=Ready"):
        space.kubectl("wait", f"node/{second_node.name}", f"--for={state}", "--timeout=50s")
    cores = int(space.get(second_node.name, "node")["status"]["allocatable"]["cpu"])
    here = {"nodeName": second_node.name}  # not the node that other tests need
    space.shell("large", "sleep 60", spec=here, resources={"requests": {"cpu": f"{cores * 500}m"}})
    space.shell("modest", "sleep 60", spec=here, resources={"requests": {"cpu": "10m"}})
    space.phase("large", "Running")
    space.phase("modest", "Running")
    resize(space, "modest", requests={"cpu": f"{cores * 600}m"})
    status = space.until(
        "modest", lambda status: condition(status, "PodResizePending").get("reason") == "Deferred"
    )
    assert status["containerStatuses"][0]["allocatedResources"] == {"cpu": "10m"}
    space.kubectl("delete", "pod", "large")
    status = space.until("modest", lambda status: not condition(status, "PodResizePending"))
    assert status["containerStatuses"][0]["allocatedResources"]["cpu"] != "10m"


# --- refusals


@pytest.mark.thorough
def test_a_volume_that_cannot_be_mounted_fails_the_pod_with_an_event(
    space: Space,
) -> None:
    volume = {"volumes": [{"name": "data", "nfs": {"server": "files", "path": "/"}}]}
    space.shell(
        "mounter", "true", spec=volume, volumeMounts=[{"name": "data", "mountPath": "/data"}]
    )
    status = space.phase("mounter", "Failed")
    assert status["reason"] == "ProcessNodeUnsupported"
    assert "spec.volumes[0].nfs" in status["message"]
    event = space.event("mounter", "ProcessNodeUnsupported")
    assert event["type"] == "Warning"
    assert event["message"] == status["message"]
    space.kubectl("delete", "pod", "mounter")


@pytest.mark.thorough
def test_a_host_path_is_accepted_at_its_own_path_only(space: Space, tmp_path: Path) -> None:
    path = tmp_path / "made"
    volumes = {
        "volumes": [{"name": "data", "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}]
    }
    mounts = [{"name": "data", "mountPath": str(path)}]
    space.shell("writer", f"echo kept > {path}/file", spec=volumes, volumeMounts=mounts)
    space.phase("writer", "Succeeded")
    assert (path / "file").read_text() == "kept\n"
    mounts = [{"name": "data", "mountPath": "/elsewhere"}]
    space.shell("mapper", "true", spec=volumes, volumeMounts=mounts)
    assert "must equal hostPath.path" in space.phase("mapper", "Failed")["message"]


@pytest.mark.thorough
def test_a_debugging_container_is_not_started_and_an_event_says_so(space: Space) -> None:
    space.shell("plain", "sleep 60")
    space.phase("plain", "Running")
    space.kubectl("debug", "plain", "--image=unused", "--attach=false", "--", "true")
    assert "spec.ephemeralContainers" in space.event("plain", "ProcessNodeUnsupported")["message"]
    assert space.get("plain")["status"]["phase"] == "Running"


def test_port_forward_by_spdy_is_rejected_with_a_reason(space: Space) -> None:
    space.shell("closed", "sleep 60")
    space.phase("closed", "Running")
    answer = space.kubectl("port-forward", "closed", ":18765", check=False)
    assert "error upgrading connection" in answer
    assert "does not do portForward in this way" in answer or "does not speak SPDY" in answer


# --- the node's own death


@pytest.fixture
def second_node(cluster: TargetCluster, space: Space, tmp_path: Path) -> Iterator[SecondNode]:
    node = SecondNode(
        cluster.kubeconfig, tmp_path, "mortal-node", taints=["elasticjob.dev/mortal=:NoSchedule"]
    )
    yield node
    space.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    node.end(signal.SIGTERM)
    space.kubectl("delete", "node", node.name)


@pytest.mark.thorough
def test_a_killed_node_leaves_no_process_and_its_successor_reports_the_lost_ones(
    space: Space, second_node: SecondNode
) -> None:
    cookie = f"4444{uuid.uuid4().int % 10**6}"
    here = {"nodeName": second_node.name}
    space.shell("lost", f"setsid sleep {cookie} & sleep {cookie}", spec=here)
    space.shell("back", "sleep 60", spec=here | {"restartPolicy": "Always"})
    before = space.phase("back", "Running")
    wait_until(
        "two processes",
        lambda: living(cookie),
        lambda pids: len(pids) == 2,
        explain=second_node.log,
    )
    second_node.end(signal.SIGKILL)
    wait_until("its processes have ended", lambda: living(cookie), lambda pids: not pids)
    second_node.start()
    ended = space.ended("lost")
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")

    def is_back(status: Json) -> bool:
        return bool(
            status["containerStatuses"][0]["restartCount"] == 1 and main(status).get("running")
        )

    status = space.until("back", is_back)
    assert status["podIP"] == before["podIP"]
    assert (
        status["containerStatuses"][0]["lastState"]["terminated"]["reason"]
        == "ContainerStatusUnknown"
    )


@pytest.mark.thorough
def test_a_stopped_node_ends_its_processes_and_reports_not_ready(
    space: Space, second_node: SecondNode
) -> None:
    cookie = f"4545{uuid.uuid4().int % 10**6}"
    space.shell(
        "cut", f"setsid sleep {cookie} & sleep {cookie}", spec={"nodeName": second_node.name}
    )
    wait_until(
        "two processes",
        lambda: living(cookie),
        lambda pids: len(pids) == 2,
        explain=second_node.log,
    )
    second_node.end(signal.SIGTERM)
    assert second_node.process.returncode == 0
    assert not living(cookie)
    ready = condition(space.get(second_node.name, "node")["status"], "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ProcessNodeStopped")
    second_node.start()


@pytest.mark.thorough
def test_a_node_given_up_for_its_silence_reports_ready_again(
    space: Space, second_node: SecondNode
) -> None:
    def says(status: str) -> None:
        def look() -> str:
            found = space.kubectl("get", "nodes", "-o", "json", check=False)
            nodes = [
                node
                for node in json.loads(found)["items"]
                if node["metadata"]["name"] == second_node.name
            ]
            return str(condition(nodes[0]["status"], "Ready").get("status")) if nodes else ""

        wait_until(
            f"the node's condition Ready is {status}",
            look,
            lambda found: found == status,
            explain=second_node.log,
        )

    says("True")
    given_up = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "no more heartbeats",
    }
    patch = json.dumps({"status": {"conditions": [given_up]}})
    space.kubectl(
        "patch",
        "node",
        second_node.name,
        "--subresource=status",
        "--type=strategic",
        f"--patch={patch}",
    )
    says("True")
