"""Streams between a user and a job's members: logs, commands, and the master's port."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from pathlib import Path

import pytest
from elasticjob_client.cluster import Cluster
from elasticjob_client.forwarding import forward
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.e2e import images
from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import job, trainer
from tests.support.wait import until, wait_until


@pytest.mark.guarantee("logs-follow-ranks")
@pytest.mark.thorough
def test_logs_follow_the_members_and_commands_run_in_them_while_the_job_is_scaled(
    sandbox: Sandbox, folder: Path, tmp_path: Path
) -> None:
    user = CommandLineUser(sandbox)
    speaking = [
        "sh",
        "-c",
        f"(while sleep 0.3; do echo alive; done) & exec {shlex.join(trainer(folder))}",
    ]
    sandbox.apply(job("digits", folder, command=speaking))
    early = user.command("logs", "digits", "-f", "--all")
    followed = tmp_path / "followed"
    with (
        followed.open("w") as file,
        subprocess.Popen(early, stdout=file, stderr=subprocess.STDOUT) as follower,
    ):
        try:
            user.out("wait", "digits", "--for=step=1", "--timeout=60")
            assert (
                user.out("exec", "digits", "--", "sh", "-c", "echo $ELASTICJOB_POD_NAME")
                == "digits-worker-0\n"
            )
            assert user.out("exec", "digits", "-i", "--", "cat", stdin="kept\n") == "kept\n"
            failed = user.run(
                "exec", "digits", "--pod=digits-worker-0", "--", "sh", "-c", "echo no >&2; exit 9"
            )
            assert (failed.returncode, failed.stdout, failed.stderr) == (9, "", "no\n")
            assert (
                "has no pod nobody"
                in user.run("exec", "digits", "--pod=nobody", "--", "true").stderr
            )
            user.out("scale", "digits", "3", "--wait")
            wait_until(
                "the third is followed", followed.read_text, lambda text: "[worker-2 rank" in text
            )
            one = user.run("logs", "digits", "--tail=1")
            assert one.stdout.startswith("[worker-0 rank 0] ")
            assert (one.stdout.count("\n"), one.stderr) == (1, "")
            both = user.out("logs", "digits", "--rank=1,2", "--tail=1", "--timestamps")
            assert [line.split("]")[0].split()[-1] for line in both.splitlines()] == ["1", "2"]
            assert "has no member of rank 7 now" in user.run("logs", "digits", "--rank=7").stderr
            assert "has no role ps; it has worker" in user.run("logs", "digits", "--role=ps").stderr
            assert user.out("logs", "digits", "--role=master")
            assert "not found" in user.run("logs", "digits", "--previous").stderr
            user.out("stop", "digits", "--wait", "--timeout=60")
            assert follower.wait(60) == 0, followed.read_text()
        finally:
            follower.kill()
            print(followed.read_text())
    for member in range(3):
        assert f"[worker-{member} rank " in followed.read_text()
    gone = wait_until(  # a real kubelet deletes pods after the job's end
        "the pods are deleted", lambda: user.run("logs", "digits"), lambda done: done.returncode
    )
    assert "has ended, as Stopped, and its pods are deleted (cleanPodPolicy All)" in gone.stderr


@pytest.mark.guarantee("logs-follow-ranks")
async def test_a_pods_port_is_forwarded_and_problems_are_reported(
    sandbox: Sandbox,
) -> None:
    port = free_port()
    other = free_port()
    echo = (
        "import socketserver as s\n"
        "class Echo(s.StreamRequestHandler):\n"
        "    def handle(self):\n"
        "        while data := self.request.recv(65536): self.wfile.write(data)\n"
        f"s.ThreadingTCPServer(('0.0.0.0', {port}), Echo).serve_forever()\n"
    )
    container = {"name": "main", "image": images.TRAINER, "command": ["python", "-c", echo]}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "echo"},
        "spec": {"containers": [container]},
    }
    sandbox.apply(body)
    sandbox.kubectl("wait", "pod/echo", "--for=condition=Ready", "--timeout=60s")
    cluster = Cluster(sandbox.kube, sandbox.namespace)
    sent = bytes(range(256)) * 8192

    async def echoed(address: str) -> bytes:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writing = asyncio.create_task(write(writer))
        try:
            return await asyncio.wait_for(reader.readexactly(len(sent)), 60)
        finally:
            await asyncio.gather(writing, return_exceptions=True)
            writer.close()

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()

    async with forward(cluster, "echo", port) as forwarding:
        await until("it listens", lambda: one_byte(forwarding.address), bool)
        assert await asyncio.gather(*(echoed(forwarding.address) for _ in range(3))) == [sent] * 3
    async with forward(cluster, "echo", other) as forwarding:
        assert not await one_byte(forwarding.address)
        assert f"error forwarding port {other}" in forwarding.problem
    async with forward(cluster, "nobody", port) as forwarding:
        assert not await one_byte(forwarding.address)
        assert 'pods "nobody" not found' in forwarding.problem


async def one_byte(address: str) -> bool:
    """Return whether a byte is echoed."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"x")
        return await asyncio.wait_for(reader.read(1), 30) == b"x"
    finally:
        writer.close()
