"""Runs the launcher's `ssh` and a worker's remote shell, with the service between them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest
import pytest_asyncio
from elasticjob_agent.remote_shell import ssh
from elasticjob_agent.training_socket import TrainingSocket
from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.v1 import discovery_pb2, remote_shell_pb2
from elasticjob_api.v1.discovery_pb2_grpc import (
    DiscoveryServiceServicer,
    add_DiscoveryServiceServicer_to_server,
)
from elasticjob_api.v1.remote_shell_pb2_grpc import (
    RemoteShellServiceStub,
    add_RemoteShellServiceServicer_to_server,
)
from elasticjob_master.config import load
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.persistence import snapshot
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.persistence.store import NoStore
from elasticjob_master.server.callers import Callers
from elasticjob_master.server.grpc_server import GrpcServer
from elasticjob_master.server.services.calls import refusing
from elasticjob_master.server.services.remote_shell_service import RemoteShellService

from tests.support.agent_process import alive
from tests.support.grpc_agent import Agent
from tests.support.wait import until

SECONDS = 60.0
HOST = "job-worker-0"
LAUNCHER = "uid-launcher"
WORKER = "uid-worker"
OTHER = "uid-other"


class Refusals(grpc.aio.ServerInterceptor):
    """Answers refusals as the master does."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        return grpc.unary_unary_rpc_method_handler(
            refusing(handler, details.method), response_serializer=handler.response_serializer
        )


class Master(DiscoveryServiceServicer):
    """The two services that a remote shell needs, for a launcher and two workers.

    It can be restarted.
    """

    def __init__(self) -> None:
        self.hosts = [HOST, "job-worker-1"]
        self._published = SimpleNamespace(value=SimpleNamespace(hosts=[]))
        self.port = 0
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        members = {
            uid: SimpleNamespace(identity=SimpleNamespace(role=role, pod_name=name))
            for uid, role, name in (
                (LAUNCHER, "launcher", "job-launcher-0"),
                (WORKER, "worker", HOST),
                (OTHER, "worker", "job-worker-1"),
            )
        }
        self.publish()
        controller = SimpleNamespace(
            framework=FRAMEWORKS["horovod"], members=members, hosts=self._published
        )
        callers = SimpleNamespace(is_agent_of=lambda _uid, _peer: True)
        self._server = grpc.aio.server(interceptors=[Refusals()])
        add_DiscoveryServiceServicer_to_server(self, self._server)
        add_RemoteShellServiceServicer_to_server(
            RemoteShellService(cast(Controller, controller), cast(Callers, callers)), self._server
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    def publish(self, *removed: str) -> None:
        self.hosts = [host for host in self.hosts if host not in removed]
        self._published.value.hosts = [SimpleNamespace(name=name) for name in self.hosts]

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(0)

    async def GetHosts(self, _request: Any, _context: Any) -> discovery_pb2.HostList:
        return discovery_pb2.HostList(
            hosts=[discovery_pb2.Host(name=name, slots=1) for name in self.hosts]
        )

    async def WatchHosts(
        self, _request: Any, _context: Any
    ) -> AsyncIterator[discovery_pb2.HostList]:
        raise NotImplementedError  # these tests do not call it
        yield


class Job:
    def __init__(self, master: Master) -> None:
        self.master = master
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{master.port}")
        self.launcher, self.worker = (
            TrainingSocket(channel=self.channel, pod_uid=uid, on_report=lambda _report: None)
            for uid in (LAUNCHER, WORKER)
        )
        self.processes: list[asyncio.subprocess.Process] = []

    async def start_worker(self, **environment: str) -> asyncio.subprocess.Process:
        variables = {
            names.ENV_POD_NAME: HOST,
            names.ENV_POD_UID: WORKER,
            "HOROVOD_CONTROLLER": "launcher",
        }
        return await self._start("worker", self.worker, {**variables, **environment})

    async def ssh(
        self, command: str, *, host: str = HOST, launcher: str = LAUNCHER
    ) -> asyncio.subprocess.Process:
        options = ["-o", "StrictHostKeyChecking=no", host, "-p", "22", command]
        return await self._start("ssh", self.launcher, {names.ENV_POD_UID: launcher}, *options)

    async def _start(
        self, module: str, socket: TrainingSocket, environment: dict[str, str], *arguments: str
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        streams: dict[str, int] = {"stdin": asyncio.subprocess.DEVNULL}
        if module == "ssh":
            streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
        command = (sys.executable, "-m", f"elasticjob_agent.remote_shell.{module}", *arguments)
        variables = {
            **os.environ,  # so that the end of the tests is the end of these processes
            names.ENV_SOCKET: str(socket.path),
            **environment,
        }
        process = await asyncio.create_subprocess_exec(
            *command,
            env=variables,
            stdin=streams["stdin"],
            stdout=streams.get("stdout"),
            stderr=streams.get("stderr"),
        )
        self.processes.append(process)
        return process


@pytest_asyncio.fixture
async def job() -> AsyncIterator[Job]:
    master = Master()
    await master.start()
    made = Job(master)
    await made.launcher.open()
    await made.worker.open()
    yield made
    for process in made.processes:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    await made.launcher.close()
    await made.worker.close()
    await made.channel.close()
    await master.stop()


async def result(process: asyncio.subprocess.Process) -> tuple[int | None, bytes, bytes]:
    """Return exit code and output of an `ssh` whose standard input stays open."""
    async with asyncio.timeout(SECONDS):
        out, err = await asyncio.gather(
            *(stream.read() for stream in (process.stdout, process.stderr) if stream)
        )
        return await process.wait(), out, err


async def first_line(process: asyncio.subprocess.Process) -> bytes:
    async with asyncio.timeout(SECONDS):
        assert process.stdout is not None
        return await process.stdout.readline()


async def wait_for_exit(pid: int) -> None:
    await until("the process has ended", lambda: not alive(pid))


@pytest.mark.guarantee("stock-horovodrun")
async def test_ssh_has_the_commands_output_and_exit_code_and_empty_standard_input(
    job: Job,
) -> None:
    await job.start_worker()
    command = (
        "cat; for i in $(seq 2000); do echo line $i; done; "
        "printf '\\377\\000'; echo bad >&2; exit 7"
    )
    code, out, err = await result(await job.ssh(command))
    lines = b"".join(b"line %d\n" % number for number in range(1, 2001))
    assert (code, out, err) == (7, lines + b"\xff\0", b"bad\n")
    assert (await result(await job.ssh("kill -9 $$")))[0] == 128 + signal.SIGKILL


@pytest.mark.guarantee("stock-horovodrun")
async def test_the_launchers_environment_is_passed_on_without_its_pods_variables(
    job: Job,
) -> None:
    await job.start_worker(ELASTICJOB_INDEX="5", HOSTNAME="worker-5")
    show = 'echo $ELASTICJOB_INDEX $HOSTNAME "$A" ${HOROVOD_CONTROLLER-unset} $0 $1'
    launchers = "HOSTNAME=launcher-0 ELASTICJOB_INDEX=0 A='x y'"
    command = f"cd / > /dev/null 2>&1 ; env {launchers} sh -c '{show}' ELASTICJOB_B=2 C"
    assert (await result(await job.ssh(command)))[1] == b"5 worker-5 x y unset ELASTICJOB_B=2 C\n"


@pytest.mark.guarantee("stock-horovodrun")
async def test_a_signal_ends_the_command_and_its_children(job: Job) -> None:
    await job.start_worker()
    started = await job.ssh("sleep 1000 & echo $!; wait")
    pid = int(await first_line(started))
    started.terminate()
    code, _, _ = await result(started)
    assert code == 128 + signal.SIGTERM
    await wait_for_exit(pid)


@pytest.mark.guarantee("horovodrun-parts-die")
async def test_a_killed_ssh_ends_its_command(job: Job) -> None:
    await job.start_worker()
    started = await job.ssh("echo $$; exec sleep 1000")
    pid = int(await first_line(started))
    started.kill()
    await wait_for_exit(pid)


@pytest.mark.guarantee("horovodrun-parts-die")
async def test_a_new_launcher_ends_commands_of_its_predecessor(job: Job) -> None:
    await job.start_worker()
    started = await job.ssh("echo $$; exec sleep 1000")
    pid = int(await first_line(started))
    code, out, _ = await result(
        await job.ssh(f"kill -0 {pid} || echo gone", launcher="uid-launcher-1")
    )
    assert (code, out) == (0, b"gone\n")
    assert (await result(started))[0] == 128 + signal.SIGTERM


@pytest.mark.guarantee("horovodrun-parts-die")
async def test_a_killed_worker_ends_its_ssh(job: Job) -> None:
    worker = await job.start_worker()
    started = await job.ssh("echo $$; exec sleep 1000")
    pid = int(await first_line(started))
    worker.kill()
    code, _, err = await result(started)
    os.kill(pid, signal.SIGKILL)  # as the worker's agent does
    assert (code, err) == (ssh.FAILED, b"ssh: job-worker-0 is lost\n")


@pytest.mark.guarantee("stock-horovodrun")
async def test_a_master_that_restarts_loses_no_output(job: Job, tmp_path: Path) -> None:
    await job.start_worker()
    started = await job.ssh(
        f"for i in $(seq 300); do echo $i; sleep 0.01; done; touch {tmp_path}/end"
    )
    await first_line(started)
    await job.master.stop()
    await job.master.start()
    code, out, _ = await result(started)
    assert (code, out) == (0, b"".join(b"%d\n" % number for number in range(2, 301)))


@pytest.mark.guarantee("stock-horovodrun")
async def test_an_unlisted_host_is_rejected_at_once(job: Job) -> None:
    code, _, err = await result(await job.ssh("true", host="job-worker-9"))
    assert (code, err) == (
        ssh.FAILED,
        b"ssh: NOT_FOUND: host 'job-worker-9' is not in the job's host list\n",
    )


@pytest.mark.guarantee("stock-horovodrun")
async def test_a_worker_reaches_only_the_launcher(job: Job) -> None:
    stub = RemoteShellServiceStub(job.channel)
    refusal = "only a member of role launcher may name another host than its own"
    for pod, host in ((WORKER, "job-worker-1"), (OTHER, HOST)):
        with pytest.raises(grpc.aio.AioRpcError, match=refusal):
            await stub.Send(
                remote_shell_pb2.SendRequest(pod_uid=pod, host=host, id="1", wait_seconds=1)
            )
        with pytest.raises(grpc.aio.AioRpcError, match=refusal):
            await stub.Receive(
                remote_shell_pb2.ReceiveRequest(pod_uid=pod, host=host, wait_seconds=1)
            )


async def test_a_worker_ends_when_its_host_is_unlisted_and_its_command_has_ended(
    job: Job,
) -> None:
    worker = await job.start_worker()
    started = await job.ssh(
        "HOROVOD_RANK=0; trap 'exit 134' TERM; echo on; while true; do sleep 0.05; done"
    )
    await first_line(started)
    job.master.publish(HOST)
    assert (await result(await job.ssh("true")))[0] == ssh.FAILED
    assert started.returncode is None
    started.terminate()  # the running command continues, and stays reachable
    assert (await result(started))[0] == 134
    async with asyncio.timeout(SECONDS):
        assert await worker.wait() == 0
    assert job.worker.present.stop_confirmed


@pytest.mark.guarantee("horovodrun-parts-die")
async def test_a_worker_whose_training_process_fails_fails(job: Job) -> None:
    worker = await job.start_worker()
    assert (await result(await job.ssh("exit 3")))[0] == 3
    assert (await result(await job.ssh("HOROVOD_RANK=0; kill -9 $$")))[0] == 137
    async with asyncio.timeout(SECONDS):
        assert await worker.wait() == 137


async def test_only_the_agent_of_a_launcher_sends_in_its_name() -> None:
    sizes = {role: RoleSize(minimum=1, desired=1) for role in ("launcher", "worker")}
    controller = Controller(framework="horovod", facts=JobFacts(sizes=sizes))
    writer = StateWriter(NoStore(), lambda: snapshot.encode(controller, job_uid=""))
    config = load(["--standalone", "--insecure", "--framework=horovod", "--grpc-port=0"], {})
    server = GrpcServer(controller, writer, config)
    target = f"127.0.0.1:{await server.start()}"
    separate = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        grpc.aio.insecure_channel(target, options=separate) as own,
        grpc.aio.insecure_channel(target, options=separate) as another,
    ):
        launcher = await Agent(0, role="launcher").join(own)
        await until("its stream", lambda: len(controller.streams) == 1)
        message = remote_shell_pb2.SendRequest(
            pod_uid=launcher.uid, host=HOST, session="s", id="i", wait_seconds=0.01
        )
        assert not (await RemoteShellServiceStub(own).Send(message)).taken
        with pytest.raises(grpc.aio.AioRpcError, match="only its agent") as refused:
            await RemoteShellServiceStub(another).Send(message)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        launcher.stream.cancel()
    await server.stop()
