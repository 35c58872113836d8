"""Queries a job whose master has ended, with a real API server and the command line."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
import yaml
from elasticjob_api import names
from elasticjob_api.answers import pack, unpack
from elasticjob_api.query_token import query_token
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import agent_pb2_grpc, job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_client.access import Access
from elasticjob_client.answers import NoReport, stored_answers
from elasticjob_client.cluster import open_cluster
from elasticjob_client.dashboard import serve_dashboard
from elasticjob_client.jobs import get_job
from elasticjob_client.master import find_master
from elasticjob_kube.errors import AlreadyExists, Refused
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    PODS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from elasticjob_kube.session import connect
from elasticjob_localcluster.cluster import Cluster

from tests.support.command_line import elasticjob
from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_on_kubernetes import JOB, Setting
from tests.support.master_process import TOKEN, Master, certificates
from tests.support.service_accounts import kubeconfig_of, not_forbidden
from tests.support.wait import until

SECONDS = 30
VIEWED = names.query_config_map(JOB)


async def run(cluster: Cluster, namespace: str, *arguments: str) -> tuple[int, str, str]:
    """Run `elasticjob` on the cluster; return exit code, output and errors."""
    return await elasticjob(*arguments, f"--kubeconfig={cluster.kubeconfig}", "-n", namespace)


@pytest.fixture
async def readable(setting: Setting) -> Setting:
    """Create a job with the ConfigMap for viewers, as the operator does."""
    data = {names.SECRET_TOKEN: query_token(TOKEN), names.SECRET_CA: certificates()[0]}
    await setting.kube.create(
        CONFIG_MAPS, setting.namespace, {"metadata": {"name": VIEWED}, "data": data}
    )
    return setting


@asynccontextmanager
async def training(setting: Setting) -> AsyncIterator[tuple[Master, list[Agent]]]:
    """Run a master whose job has trained three steps."""
    async with setting.master() as master, master.channel() as channel:
        agents = await world_of_two(channel)
        for step in (1, 2, 3):
            metrics = {"loss": 1 / step}
            report = pb.StepReport(
                round=1, step=step, total_steps=9, samples=30, seconds=1, steps=1, metrics=metrics
            )
            await agents[0].send(step=report)
        master_job = JobServiceStub(channel)

        async def has_trained() -> bool:
            report = await master_job.GetReport(job_pb2.GetReportRequest(), timeout=SECONDS)
            return report.step == 3 and report.time.training > 0

        await until("some training", has_trained)
        yield master, agents


async def stored(setting: Setting) -> job_pb2.StoredAnswers | None:
    found = await setting.kube.get(CONFIG_MAPS, setting.namespace, VIEWED)
    packed = (found.get("binaryData") or {}).get(names.REPORT_KEY)
    return unpack(base64.b64decode(packed)) if packed else None


async def test_a_job_shows_what_it_has_cost_over_all_its_masters(
    readable: Setting, cluster: Cluster
) -> None:
    role = {"desired": 2, "indices": "0-1", "resources": {"cpu": "2", "memory": "1Gi"}}
    await readable.patch_job({"status": {"replicaStatuses": {"worker": role}}}, "status")
    prices = {names.ENV_PRICES: "cpu=1000000,memory=1000000", names.ENV_CURRENCY: "EUR"}

    async def cost(channel: grpc.aio.Channel) -> float:
        found = await JobServiceStub(channel).GetReport(job_pb2.GetReportRequest(), timeout=SECONDS)
        return float(found.cost.amount)

    async with readable.master(environment=prices) as master, master.channel() as channel:
        await world_of_two(channel)
        await until("a cost", lambda: cost(channel))
        before = await cost(channel)
    # The time of a master at this price adds nothing, so what it shows is what was stored.
    free = prices | {names.ENV_PRICES: "cpu=0"}
    async with readable.master(environment=free) as master, master.channel() as channel:

        async def is_known() -> bool:
            return await cost(channel) >= before

        await until("the cost of the first master's time", is_known)
    _, output, _ = await run(cluster, readable.namespace, "describe", JOB)
    [line] = [each for each in output.splitlines() if each.startswith("Cost")]
    shown = float(line.split()[1].replace(",", ""))
    assert shown >= round(before, 2)
    assert line.split()[2] == "EUR"


@pytest.mark.guarantee("answers-after-the-end")
async def test_all_queries_answer_for_a_job_that_has_ended(
    readable: Setting, cluster: Cluster
) -> None:
    setting = readable
    namespace = readable.namespace
    async with training(setting) as (master, _):
        one = {"worker": {"replicas": 1}}
        await setting.create_plan("fewer", replicaResourceSpecs=one, reason="by hand")
        await until("a sample and the plan", lambda: _is_sampled(master))
    status = {
        "phase": "Succeeded",
        "completionTime": "2026-01-01T00:00:00Z",
        "message": "all is trained",
    }
    await setting.patch_job({"status": status}, "status")

    for arguments, expected in (
        (("query", JOB), f"{namespace}/{JOB}"),
        (("query", JOB, "-w"), f"{namespace}/{JOB}"),
        (("query", JOB, "members"), "job-worker-1"),
        (("query", JOB, "progress"), "3/9"),
        (("query", JOB, "history"), "WorldFormed"),
        (("query", JOB, "plans"), "by hand"),
        (("query", JOB, "autoscaling"), "no size has been measured"),
        (("query", JOB, "report"), "Succeeded: all is trained"),
        (("history", JOB), "step 3, world of 2"),
        (("history", JOB, "-w"), "loss 0.33333"),
    ):
        code, output, errors = await run(cluster, namespace, *arguments)
        assert code == 0, errors
        assert expected in output, (arguments, output)
        notice = f"job {namespace}/{JOB} has ended, as Succeeded: all is trained; this is as of 20"
        assert errors.startswith(notice), errors
        assert len(errors.splitlines()) == 1

    _, output, _ = await run(cluster, namespace, "history", JOB, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert {row["step"]: row["loss"] for row in rows if row["step"]}["3"] == "0.33333"
    assert "WorldFormed" in {row["event"] for row in rows}
    _, output, _ = await run(cluster, namespace, "query", JOB, "report", "-o", "json")
    report = json.loads(output)
    assert (report["outcome"]["phase"], report["step"], report["samples"]) == (
        "Succeeded",
        "3",
        90.0,
    )
    assert 0 < report["goodput"] <= 1
    assert report["memberHours"] > 0
    _, output, _ = await run(cluster, namespace, "describe", JOB)
    assert "Goodput" in output
    async with (
        open_cluster(Access(cluster.kubeconfig, namespace=namespace)) as session,
        serve_dashboard(session, JOB) as url,
        aiohttp.ClientSession(url) as http,
    ):
        async with http.get("/") as answer:
            assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
            assert "<title>ElasticJob</title>" in await answer.text()
        async with http.get("/status") as answer:
            page = await answer.json()
    assert (page["phase"], page["progress"]["step"]) == ("Succeeded", 3)
    assert page["samples"][-1]["metrics"] == {"loss": 0.33333}
    assert page["asOf"]


async def _is_sampled(master: Master) -> bool:
    """Return whether the master's history has the last step and a plan."""
    async with master.channel() as channel:
        history = await JobServiceStub(channel).GetHistory(
            job_pb2.GetHistoryRequest(), timeout=SECONDS
        )
    return any(each.step == 3 for each in history.samples) and any(
        each.reason == "PlanMade" for each in history.events
    )


@pytest.mark.guarantee("answers-after-the-end")
async def test_a_killed_master_leaves_recent_answers(readable: Setting, cluster: Cluster) -> None:
    async with training(readable) as (master, _):
        await until("stored answers", lambda: _has_step(readable, 3))
        await master.kill()
    await readable.patch_job({"status": {"phase": "Failed", "message": "killed"}}, "status")
    code, output, errors = await run(cluster, readable.namespace, "query", JOB, "progress")
    assert code == 0
    assert "3/9" in output
    assert "has ended, as Failed: killed; this is as of" in errors


async def _has_step(setting: Setting, step: int) -> bool:
    answers = await stored(setting)
    return answers is not None and answers.status.progress.step == step


@pytest.mark.guarantee("answers-after-the-end")
async def test_suspended_jobs_and_jobs_with_unreachable_masters_keep_their_answers(
    readable: Setting, cluster: Cluster
) -> None:
    async with training(readable):
        pass
    await readable.patch_job({"status": {"phase": "Suspended"}}, "status")
    code, output, errors = await run(cluster, readable.namespace, "query", JOB, "progress")
    assert (code, "3/9" in output) == (0, True), errors
    assert "has no master yet (phase Suspended); this is as of" in errors
    await readable.patch_job(
        {"status": {"phase": "Running", "masterAddress": "127.0.0.1:1"}}, "status"
    )
    code, output, errors = await run(cluster, readable.namespace, "query", JOB, "progress")
    assert (code, "3/9" in output) == (0, True), errors
    assert "can't be reached" in errors
    code, output, errors = await run(
        cluster, readable.namespace, "query", JOB, "progress", "--address=127.0.0.1:1"
    )
    assert (code, output) == (1, ""), "who names an address wants the master there"


@pytest.mark.guarantee("every-second-counted-once")
async def test_the_next_master_continues_the_report(readable: Setting) -> None:
    async with training(readable):
        await until("stored answers", lambda: _has_step(readable, 3))
    first = await stored(readable)
    assert first is not None
    async with readable.master():
        await until("another write", lambda: _written_after(readable, first.time))
    second = await stored(readable)
    assert second is not None
    assert second.report.began == first.report.began
    assert second.report.time.training >= first.report.time.training > 0
    assert (second.report.masters, second.report.samples) == (2, 90.0)
    assert list(second.history.samples)[: len(first.history.samples)] == list(first.history.samples)


async def _written_after(setting: Setting, time: float) -> bool:
    answers = await stored(setting)
    return answers is not None and answers.time > time


@pytest.mark.guarantee("answers-after-the-end")
async def test_training_continues_if_an_earlier_operator_created_no_config_map(
    setting: Setting,
) -> None:
    async with training(setting) as (master, agents):
        await master.logged("no answers are stored for the time after")
        assert not agents[0].ended.is_set()
    assert master.log.read_text().count("no answers are stored for the time after") == 1


@pytest.mark.guarantee("answers-after-the-end")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "no answers are stored"),
        ({names.REPORT_KEY: base64.b64encode(b"?").decode()}, "cannot be read"),
        (
            {names.REPORT_KEY: base64.b64encode(pack(job_pb2.StoredAnswers(job_uid="x"))).decode()},
            "of another job",
        ),
    ],
)
async def test_a_report_that_is_not_this_jobs_is_not_shown(
    readable: Setting, cluster: Cluster, content: dict[str, Any], why: str
) -> None:
    await readable.kube.patch(CONFIG_MAPS, readable.namespace, VIEWED, {"binaryData": content})
    async with open_cluster(Access(cluster.kubeconfig, namespace=readable.namespace)) as session:
        with pytest.raises(NoReport, match=why):
            await stored_answers(session, await get_job(session, JOB))


@pytest.fixture
async def viewer(readable: Setting, cluster: Cluster) -> Path:
    """Create the kubeconfig of an account with the built-in role `view`, which includes ours."""
    kube = readable.kube
    namespace = readable.namespace
    chart = Path(__file__).parents[2] / "deploy" / "base" / "operator.yaml"
    [role] = [
        each
        for each in yaml.safe_load_all(chart.read_text())
        if each["metadata"]["name"] == "elasticjob-viewer"
    ]
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    with suppress(AlreadyExists):
        await kube.request("POST", path, body=role)
    await kube.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "viewer"}})
    subjects = [{"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    body = {"metadata": {"name": "viewer"}, "subjects": subjects, "roleRef": reference}
    await kube.create(ROLE_BINDINGS, namespace, body)
    (folder := readable.folder / "viewer").mkdir()
    return await kubeconfig_of("viewer", cluster, kube, namespace, folder)


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_a_user_who_may_view_a_job_may_query_it_and_change_nothing(
    readable: Setting, viewer: Path
) -> None:
    namespace = readable.namespace
    async with (
        training(readable) as (master, _),
        open_cluster(Access(viewer, namespace=namespace)) as session,
    ):
        address = f"127.0.0.1:{master.grpc_port}"
        await readable.patch_job(
            {"status": {"phase": "Running", "masterAddress": address}}, "status"
        )

        async def may_see() -> bool:
            try:
                await session.kube.get(ELASTIC_JOBS, namespace, JOB)
            except Refused:
                return False  # the API server has not aggregated the roles yet
            return True

        await until("the account may see the job", may_see)
        code, output, errors = await elasticjob(
            "query", JOB, "progress", f"--kubeconfig={viewer}", "-n", namespace
        )
        assert (code, errors) == (0, "")
        assert "3/9" in output

        endpoint = await find_master(session, await get_job(session, JOB))
        assert endpoint.token != TOKEN
        async with endpoint.channel() as channel:
            register = agent_pb2_grpc.AgentServiceStub(channel).Register
            stranger = pb.RegisterRequest(
                pod_name="x", pod_uid="x", role="worker", address="127.0.0.1", slots=1
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await register(stranger, metadata=endpoint.metadata, timeout=SECONDS)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    async with connect(user_agent="tests", kubeconfig=viewer) as kube:
        attempts: tuple[tuple[str, str, str, Any], ...] = (
            (
                "scale the job",
                "PATCH",
                ELASTIC_JOBS.path(namespace, JOB, "scale"),
                {"spec": {"replicas": 3}},
            ),
            (
                "change the job",
                "PATCH",
                ELASTIC_JOBS.path(namespace, JOB),
                {"spec": {"runPolicy": {"suspend": True}}},
            ),
            ("delete the job", "DELETE", ELASTIC_JOBS.path(namespace, JOB), None),
            ("forge a report", "PATCH", CONFIG_MAPS.path(namespace, VIEWED), {"binaryData": {}}),
            (
                "read the job's token",
                "GET",
                SECRETS.path(namespace, names.master_service(JOB)),
                None,
            ),
            (
                "forward a port",
                "POST",
                PODS.path(namespace, names.master_service(JOB), "portforward"),
                None,
            ),
        )
        assert not await not_forbidden(kube, attempts)
