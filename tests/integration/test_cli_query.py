"""Runs `elasticjob query` with a real API server and a real master: answers, and clear errors."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.query_token import query_token
from elasticjob_api.v1 import agent_pb2, agent_pb2_grpc, shards_pb2, shards_pb2_grpc
from elasticjob_kube.resources import CONFIG_MAPS, ELASTIC_JOBS, SECRETS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.controlplane.ports import free_port
from elasticjob_operator.certificates import new_job_secrets
from elasticjob_operator.core.manifests.infrastructure import query_config_map

from tests.support.command_line import Watch, elasticjob, watching
from tests.support.operator_process import job as manifest
from tests.support.service_accounts import make_account

pytestmark = pytest.mark.thorough

BIN = Path(sys.executable).parent
JOB = "digits"
SECONDS = 30


async def query(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    return await elasticjob("query", f"--kubeconfig={cluster.kubeconfig}", *arguments)


def watch(cluster: Cluster, *arguments: str) -> AbstractAsyncContextManager[Watch]:
    access = f"--kubeconfig={cluster.kubeconfig}"
    return watching("query", access, *arguments, "-w", "-o", "json")


@pytest.fixture
async def job(kube: Kube, namespace: str) -> str:
    """Create the job; return its namespace."""
    await kube.create(ELASTIC_JOBS, namespace, manifest(JOB))
    return namespace


@pytest.fixture
async def secrets(kube: Kube, job: str) -> dict[str, bytes]:
    made = new_job_secrets(JOB, job)
    data = {key: base64.b64encode(value).decode() for key, value in made.items()}
    named = {"metadata": {"name": names.master_service(JOB)}}
    await kube.create(SECRETS, job, named | {"data": data})
    return made


@pytest.fixture
async def master_port(kube: Kube, job: str) -> int:
    """Return the port at which the job's status announces a master."""
    port = free_port()
    await set_job_status(kube, job, phase="Running", masterAddress=f"127.0.0.1:{port}")
    return port


async def make_readable(kube: Kube, job: str, secrets: dict[str, bytes]) -> None:
    """Create the ConfigMap for viewers, as the operator does."""
    found = msgspec.convert(await kube.get(ELASTIC_JOBS, job, JOB), ElasticJob)
    data = {key: base64.b64encode(value).decode() for key, value in secrets.items()}
    await kube.create(CONFIG_MAPS, job, query_config_map(found, data))


async def set_job_status(kube: Kube, namespace: str, **status: Any) -> None:
    await kube.patch(ELASTIC_JOBS, namespace, JOB, {"status": status}, subresource="status")


@asynccontextmanager
async def running_master(
    namespace: str, secrets: dict[str, bytes], port: int
) -> AsyncIterator[grpc.aio.Channel]:
    """A master in its own process, without Kubernetes, but with the job's token and certificate."""
    environment = {
        names.ENV_JOB_NAME: JOB,
        names.ENV_NAMESPACE: namespace,
        names.ENV_TOKEN: secrets[names.SECRET_TOKEN].decode(),
        names.ENV_TLS_CERT: secrets[names.SECRET_CERT].decode(),
        names.ENV_TLS_KEY: secrets[names.SECRET_KEY].decode(),
    }
    process = await asyncio.create_subprocess_exec(
        BIN / "elasticjob-master", "--standalone", "--workers=2", "--framework=jax",
        "--address=127.0.0.1",
        f"--grpc-port={port}", "--http-port=0", env=dict(os.environ) | environment,
    )  # fmt: skip
    credentials = grpc.ssl_channel_credentials(secrets[names.SECRET_CA])
    options = (("grpc.ssl_target_name_override", names.TLS_SERVER_NAME),)
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            yield channel
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), SECONDS)


async def one_member(channel: grpc.aio.Channel, secrets: dict[str, bytes]) -> None:
    """Register a member, and lease some shards for it."""
    token = ((names.TOKEN_METADATA, f"Bearer {secrets[names.SECRET_TOKEN].decode()}"),)
    member = agent_pb2.RegisterRequest(
        pod_name=f"{JOB}-worker-0", pod_uid="u0", role="worker", address="127.0.0.1", slots=1
    )
    agents = agent_pb2_grpc.AgentServiceStub(channel)
    await agents.Register(member, metadata=token, wait_for_ready=True, timeout=SECONDS)
    shards = shards_pb2_grpc.ShardServiceStub(channel)
    dataset = shards_pb2.CreateDatasetRequest(dataset="train", size=100, shard_size=10, epochs=1)
    await shards.CreateDataset(dataset, metadata=token, timeout=SECONDS)
    wanted = shards_pb2.LeaseShardsRequest(dataset="train", pod_uid="u0", count=3)
    await shards.LeaseShards(wanted, metadata=token, timeout=SECONDS)


async def test_a_running_job_is_shown_with_its_members_and_shards(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes], master_port: int
) -> None:
    await make_readable(kube, job, secrets)
    await kube.delete(SECRETS, job, names.master_service(JOB))
    async with running_master(job, secrets, master_port) as channel:
        await one_member(channel, secrets)
        code, text, errors = await query(cluster, JOB, "-n", job)
        assert (code, errors) == (0, "")
        named = (
            f"{job}/{JOB}",
            "Waiting",
            "ROLE",
            f"{JOB}-worker-0",
            "127.0.0.1",
            "DATASET",
            "train",
        )
        assert [part for part in named if part not in text] == [], text
        code, text, _ = await query(cluster, JOB, "-n", job, "-o", "json")
        found = json.loads(text)
        assert (found["jobName"], found["phase"]) == (JOB, "JOB_PHASE_WAITING")
        assert [(member["podName"], member["rank"]) for member in found["members"]] == [
            (f"{JOB}-worker-0", None)
        ]
        assert (found["datasets"][0]["total"], found["datasets"][0]["leased"]) == ("10", "3")
        assert (found["autoscaling"]["enabled"], found["autoscaling"]["sizes"]) == (False, [])


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_an_earlier_operators_secret_or_else_the_jobs_own_token_is_used(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes], master_port: int
) -> None:
    token = query_token(secrets[names.SECRET_TOKEN].decode()).encode()
    own: dict[str, Any] = {"metadata": {"name": names.query_config_map(JOB)}}
    for text in (b"of a later version", token):
        parts = {names.SECRET_TOKEN: text, names.SECRET_CA: secrets[names.SECRET_CA]}
        own["data"] = {key: base64.b64encode(part).decode() for key, part in parts.items()}
        if text == token:
            await kube.delete(SECRETS, job, names.master_service(JOB))
            await kube.patch(SECRETS, job, names.query_config_map(JOB), {"data": own["data"]})
        else:
            await kube.create(SECRETS, job, own)
        async with running_master(job, secrets, master_port) as channel:
            await one_member(channel, secrets)
            for topic in ("status", "members"):
                code, text_, errors = await query(cluster, JOB, topic, "-n", job)
                assert (code, errors) == (0, "")
                assert f"{JOB}-worker-0" in text_


async def test_a_watch_ends_with_the_job(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes], master_port: int
) -> None:
    async with AsyncExitStack() as stack:
        async with running_master(job, secrets, master_port) as channel:
            await one_member(channel, secrets)
            answers = await stack.enter_async_context(watch(cluster, JOB, "-n", job))
            assert (await answers.next())["jobName"] == JOB
            await set_job_status(kube, job, phase="Succeeded")
        code, errors = await answers.end()
    assert code == 0
    assert "Succeeded" in errors


async def test_an_unreachable_master_is_named_with_its_address(
    cluster: Cluster, job: str, secrets: dict[str, bytes], master_port: int
) -> None:
    code, text, errors = await query(cluster, JOB, "-n", job)
    assert (code, text) == (1, "")
    assert f"the master of {job}/{JOB} at 127.0.0.1:{master_port} can't be reached" in errors


async def test_a_given_address_replaces_the_one_in_the_status(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes]
) -> None:
    port = free_port()
    async with running_master(job, secrets, port) as channel:
        await one_member(channel, secrets)
        code, text, errors = await query(cluster, JOB, "-n", job, "--address", f"127.0.0.1:{port}")
    assert code == 0, errors
    assert f"{JOB}-worker-0" in text


async def test_members_progress_history_plans_and_auto_scaling_can_be_queried(
    cluster: Cluster, job: str, secrets: dict[str, bytes], master_port: int
) -> None:
    async with running_master(job, secrets, master_port) as channel:
        await one_member(channel, secrets)
        # Query this first: a member without a stream is lost after a while.
        _, text, _ = await query(cluster, JOB, "members", "-n", job)
        assert text.splitlines()[1].split()[:3] == ["worker", "0", f"{JOB}-worker-0"]
        code, text, errors = await query(cluster, JOB, "history", "-n", job)
        assert (code, errors) == (0, "")
        assert [line.split()[1] for line in text.splitlines()][:2] == [
            "MasterStarted",
            "MemberRegistered",
        ]
        assert f"{JOB}-worker-0 at 127.0.0.1" in text
        keys = {"progress": "step", "history": "events", "autoscaling": "sizes"}
        for topic, key in ({"members": "members", "plans": "plans"} | keys).items():
            code, text, errors = await query(cluster, JOB, topic, "-n", job, "-o", "json")
            assert (code, errors) == (0, "")
            assert key in json.loads(text), text
        _, text, _ = await query(cluster, JOB, "autoscaling", "-n", job)
        assert text == "Auto-scaling is off, and no size has been measured.\n"
    code, _, errors = await query(cluster, JOB, "nonsense", "-n", job)
    assert code == 2
    assert "nonsense" in errors


async def test_a_watched_history_prints_new_entries(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes], master_port: int
) -> None:
    async with running_master(job, secrets, master_port) as channel:
        await channel.channel_ready()
        async with watch(cluster, JOB, "history", "-n", job) as changes:
            answers = [await changes.next()]
            await one_member(channel, secrets)
            answers.append(await changes.next())
    assert [[event["reason"] for event in each["events"]] for each in answers] == [
        ["MasterStarted"],
        ["MemberRegistered"],
    ]


async def test_the_master_of_another_job_is_rejected(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes]
) -> None:
    port = free_port()
    other = dict(secrets) | {names.SECRET_TOKEN: b"of-another-job"}
    async with running_master(job, other, port) as channel:
        await one_member(channel, other)
        code, _, errors = await query(cluster, JOB, "-n", job, "--address", f"127.0.0.1:{port}")
    assert code == 1
    assert "does not accept this job's token" in errors


async def test_an_unknown_job_is_named(cluster: Cluster, namespace: str) -> None:
    code, _, errors = await query(cluster, "nosuch", "-n", namespace)
    assert code == 1
    assert f'ElasticJob {namespace}/nosuch: elasticjobs.elasticjob.dev "nosuch" not found' in errors
    assert f"kubectl get elasticjobs -n {namespace}" in errors


async def test_a_finished_job_has_no_master(kube: Kube, cluster: Cluster, job: str) -> None:
    await set_job_status(kube, job, phase="Failed", message="it is refused")
    code, _, errors = await query(cluster, JOB, "-n", job)
    assert (code, errors.endswith("is Failed; it never had a master: it is refused\n")) == (1, True)
    await set_job_status(kube, job, phase="Failed", master={"incarnations": 1})
    code, _, errors = await query(cluster, JOB, "-n", job)
    assert code == 1
    assert "is Failed; a finished job has no master; no answers are stored" in errors
    assert "was of an earlier version" in errors


async def test_a_query_waits_for_the_master_of_a_job_that_starts(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes]
) -> None:
    port = free_port()
    await set_job_status(kube, job, phase="Starting", masterAddress=f"127.0.0.1:{port}")
    starting = asyncio.ensure_future(query(cluster, JOB, "-n", job))
    async with running_master(job, secrets, port) as channel:
        await one_member(channel, secrets)
        ready = {"type": "MasterReady", "status": "True", "reason": "Started", "message": ""}
        ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await set_job_status(kube, job, conditions=[ready])
        code, _, errors = await starting
    assert (code, errors) == (0, "")


async def test_a_new_job_has_no_master_yet(cluster: Cluster, job: str) -> None:
    code, _, errors = await query(cluster, JOB, "-n", job)
    assert code == 1
    assert "has no master yet" in errors


async def test_a_user_who_may_not_read_the_token_gets_an_error(
    kube: Kube, cluster: Cluster, job: str, secrets: dict[str, bytes], tmp_path: Path
) -> None:
    await set_job_status(kube, job, phase="Running", masterAddress="127.0.0.1:1")
    rule = {"apiGroups": ["elasticjob.dev"], "resources": ["elasticjobs"], "verbs": ["get"]}
    kubeconfig = await make_account("reader", cluster, kube, job, tmp_path, rule)

    code, _, errors = await query(cluster, JOB, "-n", job, f"--kubeconfig={kubeconfig}")
    assert code == 1
    assert f'configmaps "{JOB}-query" is forbidden' in errors
    assert f"you need `get` on ConfigMap {JOB}-query" in errors


async def test_a_missing_kubeconfig_is_named(cluster: Cluster, tmp_path: Path) -> None:
    code, _, errors = await query(cluster, JOB, f"--kubeconfig={tmp_path / 'none'}")
    assert code == 1
    assert "no usable kubeconfig" in errors
    assert "KUBECONFIG" in errors
