"""Runs kubectl exec on the process node, through the real API server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import uuid
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.e2e.target_cluster import TargetCluster
from tests.support.wait import wait_until

pytestmark = pytest.mark.embedded_only("these are guarantees of the process node")


@pytest.fixture
def pod(cluster: TargetCluster, namespace: str) -> list[str | Path]:
    """Return the command line of kubectl exec into a running pod, without options."""
    container = {
        "name": "main",
        "image": "unused",
        "command": ["sleep", "3600"],
        "env": [{"name": "COLOR", "value": "green"}],
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "host", "namespace": namespace},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    text = json.dumps(body)
    subprocess.run(
        cluster.command("create", "-f", "-"), input=text, text=True, check=True, timeout=60
    )
    cluster.kubectl("wait", "-n", namespace, "pod/host", "--for=condition=Ready", "--timeout=50s")
    return cluster.command("exec", "-n", namespace, "host")


def living(cookie: str) -> list[int]:
    """Return the processes with this argument, except for kubectl itself."""
    found = psutil.process_iter(["cmdline", "name"])
    return [
        each.pid
        for each in found
        if cookie in (each.info["cmdline"] or ()) and each.info["name"] != "kubectl"
    ]


def test_a_command_has_the_containers_environment_its_own_streams_and_its_exit_code(
    pod: list[str | Path],
) -> None:
    script = 'echo "$COLOR $(pwd)"; echo problem >&2; exit 7'
    done = subprocess.run(
        [*pod, "--", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("green /")
    assert done.stdout.endswith("/scratch\n")
    assert (done.stderr.splitlines()[0], done.returncode) == ("problem", 7)
    none = subprocess.run(
        [*pod, "--", "nosuchprogram"], capture_output=True, text=True, timeout=60, check=False
    )
    assert none.returncode != 0
    assert "executable file not found in $PATH" in none.stderr


def test_a_command_reads_piped_input_to_the_end(pod: list[str | Path]) -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))
    done = subprocess.run(
        [*pod, "-i", "--", "cat"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == text


def test_a_command_has_a_terminal_of_the_users_size(pod: list[str | Path]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    script = (
        "while [ \"$(stty size)\" != '33 77' ]; do sleep 0.05; done; tty; read line; echo got $line"
    )
    with subprocess.Popen(
        [*pod, "-it", "--", "sh", "-c", script], stdin=theirs, stdout=theirs, stderr=theirs
    ) as run:
        os.close(theirs)
        os.write(ours, b"hello\n")
        said = b""
        try:
            while data := os.read(ours, 1000):
                said += data
        except OSError:  # the other end is closed
            pass
        assert run.wait(60) == 0, said
    os.close(ours)
    assert b"/dev/pts/" in said
    assert b"got hello" in said


def test_a_command_ends_with_its_container_and_when_its_user_disconnects(
    cluster: TargetCluster, namespace: str, pod: list[str | Path]
) -> None:
    cookies = [uuid.uuid4().hex for _ in range(2)]
    scripts = [
        ["--", "sh", "-c", "sh -c 'while sleep 0.1; do :; done' $0 & wait", cookie]
        for cookie in cookies
    ]
    runs = [subprocess.Popen([*pod, *script], stdout=subprocess.DEVNULL) for script in scripts]
    try:
        for cookie in cookies:
            wait_until(
                "the command and what it has started run",
                partial(living, cookie),
                lambda it: len(it) >= 2,
            )
        runs[0].kill()
        wait_until(
            "nothing of the first is left", lambda: living(cookies[0]), lambda found: not found
        )
        assert living(cookies[1])
        cluster.kubectl("delete", "pod", "host", "-n", namespace, "--wait=false")
        wait_until(
            "nothing of the second is left", lambda: living(cookies[1]), lambda found: not found
        )
        assert runs[1].wait(60) != 0
    finally:
        for run in runs:
            run.kill()
            run.wait()
