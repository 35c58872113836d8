"""Queries a running job: once, by a watch, in a browser, and at the next master."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_master.persistence.stored_state import decode
from elasticjob_master.server.services.job_service import MOST_WATCHES
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.browser import open_browser, visit
from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_process import STANDALONE, TOKEN, Master, certificates, run_master
from tests.support.wait import SECONDS, until


async def report(agent: Agent, step: int) -> None:
    await agent.send(
        step=pb.StepReport(
            round=agent.running,
            step=step,
            total_steps=90,
            samples=10,
            seconds=1,
            steps=1,
            metrics={"loss": 0.5},
        )
    )


async def events(channel: grpc.aio.Channel) -> list[tuple[str, str]]:
    found = await JobServiceStub(channel).GetHistory(job_pb2.GetHistoryRequest())
    return [(event.reason, event.message) for event in found.events]


async def test_every_watch_sends_the_present_then_the_change_and_ends_with_the_master(
    master: Master, channel: grpc.aio.Channel
) -> None:
    stub = JobServiceStub(channel)
    watches: dict[str, grpc.aio.UnaryStreamCall[Any, Any]] = {
        "status": stub.WatchStatus(job_pb2.WatchStatusRequest(), timeout=SECONDS),
        "members": stub.WatchMembers(job_pb2.WatchMembersRequest(), timeout=SECONDS),
        "progress": stub.WatchProgress(job_pb2.WatchProgressRequest(), timeout=SECONDS),
        "history": stub.WatchHistory(job_pb2.WatchHistoryRequest(), timeout=SECONDS),
        "plans": stub.WatchPlans(job_pb2.WatchPlansRequest(), timeout=SECONDS),
        "autoscaling": stub.WatchAutoscaling(job_pb2.WatchAutoscalingRequest(), timeout=SECONDS),
    }
    values: dict[str, list[Any]] = {name: [await watch.read()] for name, watch in watches.items()}
    assert values["status"][0].phase == job_pb2.JOB_PHASE_WAITING
    assert values["members"][0].members == values["plans"][0].plans == []
    assert values["progress"][0].eta_seconds == values["autoscaling"][0].decision_seconds == -1
    assert [event.reason for event in values["history"][0].events] == ["MasterStarted"]

    async def read(name: str) -> None:
        while (each := await watches[name].read()) is not grpc.aio.EOF:
            values[name].append(each)

    readers = [asyncio.create_task(read(name)) for name in watches]
    first, second = await world_of_two(channel)
    for agent in (first, second):
        await report(agent, 3)
    await until(
        "the step in two watches",
        lambda: values["progress"][-1].step == values["status"][-1].progress.step == 3,
    )
    await until(
        "the step of both members",
        lambda: [member.step for member in values["members"][-1].members] == [3, 3],
    )
    await until("events", lambda: values["history"][-1].events)
    master.process.terminate()
    await asyncio.wait_for(asyncio.gather(*readers), SECONDS)
    # A second SIGTERM at its very end would change the exit code.
    await asyncio.wait_for(master.process.wait(), SECONDS)
    assert [event.reason for each in values["history"] for event in each.events] == [
        "MasterStarted", "MemberRegistered", "MemberRegistered", "WorldFormed",
    ], "each event once, by a watch that sends only new ones"  # fmt: skip
    assert len(values["plans"]) == len(values["autoscaling"]) == 1, (
        "what does not change is sent once"
    )


async def test_a_watch_sends_at_most_one_value_a_second(channel: grpc.aio.Channel) -> None:
    first, _ = await world_of_two(channel)
    began = time.monotonic()
    received = 0
    watch = aiter(
        JobServiceStub(channel).WatchProgress(job_pb2.WatchProgressRequest(), timeout=SECONDS)
    )
    assert (await anext(watch)).step == 0
    for step in range(1, 90):
        await report(first, step)
        await asyncio.sleep(0.02)
    while (await anext(watch)).step < 89:
        received += 1
    assert received <= time.monotonic() - began


async def test_progress_has_steps_per_second_and_the_remaining_time(
    channel: grpc.aio.Channel,
) -> None:
    first, second = await world_of_two(channel)
    for step in (1, 2, 3):
        for agent in (first, second):
            await report(agent, step)
    stub = JobServiceStub(channel)

    async def steps() -> list[int]:
        return [
            member.step for member in (await stub.GetMembers(job_pb2.GetMembersRequest())).members
        ]

    await until("the last report of both", steps, lambda found: found == [3, 3])
    async for progress in stub.WatchProgress(job_pb2.WatchProgressRequest(), timeout=SECONDS):
        if progress.step == 3 and progress.samples_per_second > 19:
            break
    assert progress.samples_per_second == pytest.approx(20.0)
    assert progress.steps_per_second == pytest.approx(1.0)
    assert progress.eta_seconds == pytest.approx(87.0)
    assert (progress.stalled_since, dict(progress.metrics)) == (0, {"loss": 0.5})
    again = await stub.GetProgress(job_pb2.GetProgressRequest())
    assert again == (await stub.GetStatus(job_pb2.GetStatusRequest())).progress == progress


async def test_the_history_names_members_that_joined_failed_and_left(
    channel: grpc.aio.Channel,
) -> None:
    first, second = await world_of_two(channel)
    await second.send(exited=pb.ProcessExited(round=1, exit_code=7))
    second.running = 0
    await until("a world of one", lambda: first.running == 2)
    third = await Agent(2).join(channel)
    await until("a world with the third", lambda: first.running == third.running == 3)
    await third.leave()
    replacement = await Agent(2, incarnation=1).join(channel)
    await until("a world with the replacement", lambda: first.running == replacement.running > 3)
    last = first.running
    await replacement.send(leaving=pb.Leaving())
    await until("a world of one again", lambda: first.running > last)
    expected = {
        ("MemberRegistered", f"{second.name} at 127.0.1.2"),
        ("WorldFormed", "round 1 with 2 members"),
        ("ProcessFailed", f"{second.name} (rank 1) in round 1: exit code 7"),
        ("MemberLeft", f"{second.name}: ended with its process"),
        ("MemberLeft", f"{replacement.name}: drained"),
        ("WorldFormed", f"round {first.running} with 1 members"),
    }
    found = await until("all events", lambda: events(channel), lambda found: expected <= set(found))
    [lost] = [message for reason, message in found if reason == "MemberLost"]
    assert lost.startswith(f"{third.name}: last heard of")


@pytest.mark.guarantee("process-restarts-are-shown")
async def test_the_history_names_restarts_of_processes_in_their_pods(
    channel: grpc.aio.Channel,
) -> None:
    first, _ = await world_of_two(channel)
    restarted = pb.ProcessRestarted(restarts=2, exit_code=9, message="ValueError:\nno")
    await first.send(restarted=restarted)
    await first.send(restarted=pb.ProcessRestarted(restarts=3, exit_code=137))
    expected = {
        ("ProcessRestarted", f"{first.name}: restart 2, after exit code 9: ValueError: no"),
        ("ProcessRestarted", f"{first.name}: restart 3, after exit code 137 (SIGKILL)"),
    }
    await until("both", lambda: events(channel), lambda found: expected <= set(found))
    told = await JobServiceStub(channel).GetMembers(job_pb2.GetMembersRequest())
    assert [member.restarts for member in told.members] == [3, 0]


@pytest.mark.guarantee("master-can-be-replaced")
async def test_the_history_outlives_a_killed_master(tmp_path: Path) -> None:
    options = (*STANDALONE, f"--state-file={tmp_path / 'state'}")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        first, _ = await world_of_two(channel)
        await report(first, 5)
        stub = JobServiceStub(channel)
        before = await stub.GetHistory(job_pb2.GetHistoryRequest())
        async for news in stub.WatchHistory(job_pb2.WatchHistoryRequest(), timeout=SECONDS):
            if any(sample.step == 5 for sample in news.samples):
                break
        await until(
            "the history in the state file",
            lambda: _kept(tmp_path / "state") >= {"WorldFormed", "step 5"},
        )
        await master.kill()
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        after = await JobServiceStub(channel).GetHistory(job_pb2.GetHistoryRequest())
    assert list(after.events)[: len(before.events)] == list(before.events)
    assert (after.events[-1].reason, after.events[-1].message) == ("MasterStarted", "start 2")
    assert [sample.step for sample in after.samples if sample.round == 1]


async def test_the_number_of_watches_is_bounded_and_an_ended_one_frees_its_place(
    master: Master,
) -> None:
    async with _connection(master, 1) as one, _connection(master, 2) as two:
        watches = [
            JobServiceStub(connection).WatchPlans(job_pb2.WatchPlansRequest())
            for connection in (one, two)
            for _ in range(MOST_WATCHES // 2)
        ]
        for watch in watches:
            await asyncio.wait_for(watch.read(), SECONDS)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await (
                JobServiceStub(two)
                .WatchStatus(job_pb2.WatchStatusRequest(), timeout=SECONDS)
                .read()
            )
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"{MOST_WATCHES} watches are open, which is the limit" in (
            refused.value.details() or ""
        )
        assert await JobServiceStub(two).GetStatus(job_pb2.GetStatusRequest(), timeout=SECONDS)
        watches[0].cancel()
        await until("a watch is admitted again", lambda: _is_admitted(two))
        for watch in watches:
            watch.cancel()


async def test_reflection_lists_every_service_to_a_client_with_the_token(
    channel: grpc.aio.Channel,
) -> None:
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    services = {service.name for service in answer.list_services_response.service}
    ours = ("Agent", "Discovery", "Horovod", "Job", "RemoteShell", "Rendezvous", "Shard")
    assert services == {
        *(f"elasticjob.v1.{name}Service" for name in ours),
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for service in services:
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=service))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto, (
            f"{service} is not described"
        )
    call.cancel()


@pytest.mark.guarantee("only-the-job-reaches-its-master")
async def test_the_dashboard_runs_only_its_own_script_and_reads_with_the_token(
    master: Master, channel: grpc.aio.Channel
) -> None:
    first, _ = await world_of_two(channel)
    await report(first, 5)
    async with _browser(master) as get:
        status, headers, page = await get("/", None)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for element in ("script", "style"):
            [content] = re.findall(f"<{element}>(.*?)</{element}>", page, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"{element}-src 'sha256-{digest}'" in policy
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://|\sstyle=",
            page.replace(
                "https://github.com/leeoniya/uPlot", "", 1
            ),  # in the notice of its authors
        )
        for path in ("/status", "/stream"):
            assert (await get(path, None))[0] == (await get(path, "wrong"))[0] == 401
        status, headers, text = await get("/status", TOKEN)
        assert (status, headers["Cache-Control"]) == (200, "no-store")
        served = json.loads(text)
        assert (served["phase"], served["round"], served["worldSize"]) == ("training", 1, 2)
        assert served["members"]["counts"] == {"training": 2}
        assert [(member["pod"], member["rank"]) for member in served["members"]["list"]] == [
            ("job-worker-0", 0), ("job-worker-1", 1),
        ]  # fmt: skip
        assert [event["reason"] for event in served["events"]][-1] == "WorldFormed"
        assert served["plans"] == served["datasets"] == []
        shown = set(re.findall(r"(?<![\w.])state\.(\w+)", page)) | set(
            re.findall(r"progress\.(\w+)", page)
        )
        shown |= set(re.findall(r"known\.(\w+)", page))
        assert "bestFrom" in shown
        assert shown <= {*served, *served["progress"], *served["autoscaling"]}, (
            "the page reads only what is served"
        )


@pytest.mark.guarantee("page-shows-the-job")
async def test_the_page_of_the_master_itself_wants_the_token_and_names_the_command_for_logs(
    master: Master, channel: grpc.aio.Channel
) -> None:
    first, _ = await world_of_two(channel)
    url = f"https://127.0.0.1:{master.http_port}/"
    async with open_browser() as browser:
        page = await visit(browser, f"{url}#token={TOKEN}")
        await page.until_text("#phase", "Running")
        assert page.page.url == url, "the token is not in the history of the browser"
        await report(first, 5)
        await page.until_text("#facts", "5 / 90")
        await page.page.click("#members tbody tr")
        await page.until_text("#log-note", "kubectl logs", "job-worker-0")
        assert page.problems == []

        stranger = await visit(browser, url)
        await stranger.page.fill("#token", "wrong")
        await stranger.page.keyboard.press("Enter")
        await stranger.until_text("#problem", "not accepted")
        await stranger.page.fill("#token", TOKEN)
        await stranger.page.keyboard.press("Enter")
        await stranger.until_text("#phase", "Running")


@pytest.mark.guarantee("page-shows-the-job")
async def test_an_open_page_gets_changes_until_its_master_ends(
    master: Master, channel: grpc.aio.Channel
) -> None:
    first, _ = await world_of_two(channel)
    context = ssl.create_default_context(cadata=certificates()[0])
    async with (
        aiohttp.ClientSession(f"https://127.0.0.1:{master.http_port}") as http,
        http.get(
            "/stream",
            headers={"Authorization": f"Bearer {TOKEN}"},
            ssl=context,
            server_hostname=names.TLS_SERVER_NAME,
        ) as answer,
    ):
        assert answer.headers["Cache-Control"] == "no-store"
        shown: dict[str, Any] = json.loads(await answer.content.readline())
        assert (shown["phase"], shown["worldSize"], shown["progress"]["step"]) == ("training", 2, 0)
        await report(first, 5)
        while shown["progress"]["step"] != 5:
            changed = json.loads(await answer.content.readline() or b"{}")
            assert "plans" not in changed, "they have not changed"
            shown |= changed
        master.process.terminate()
        with suppress(aiohttp.ClientError):
            await answer.content.read()
    assert await master.process.wait() == master.ends_with


async def test_calls_are_counted_by_method_and_rejections_by_their_reason(
    master: Master, channel: grpc.aio.Channel
) -> None:
    await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
    async with master.channel("wrong") as stranger:
        with pytest.raises(grpc.aio.AioRpcError):
            await JobServiceStub(stranger).GetStatus(job_pb2.GetStatusRequest())
    unknown: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    unknown = channel.unary_unary("/elasticjob.v1.JobService/NoSuchMethod")
    with pytest.raises(grpc.aio.AioRpcError):
        await unknown(b"")
    async with _browser(master) as get:
        _, _, text = await get("/metrics", None)
    assert 'elasticjob_grpc_calls_total{method="elasticjob.v1.JobService/GetStatus"} 1.0' in text
    assert 'elasticjob_grpc_refused_calls_total{why="token"} 1.0' in text
    assert 'elasticjob_grpc_refused_calls_total{why="method"} 1.0' in text
    assert "NoSuchMethod" not in text, "what a stranger names does not become a label"


def _kept(file: Path) -> set[str]:
    """Return the history that a master that starts now would load."""
    state = decode(file.read_bytes())
    return {event.reason for event in state.events} | {
        f"step {sample.step}" for sample in state.samples
    }


@asynccontextmanager
async def _browser(master: Master) -> AsyncIterator[Any]:
    context = ssl.create_default_context(cadata=certificates()[0])
    async with aiohttp.ClientSession(f"https://127.0.0.1:{master.http_port}") as http:

        async def get(path: str, token: str | None) -> tuple[int, Any, str]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            named = names.TLS_SERVER_NAME
            async with http.get(
                path, headers=headers, ssl=context, server_hostname=named
            ) as answer:
                return answer.status, answer.headers, await answer.text()

        yield get


@asynccontextmanager
async def _connection(master: Master, number: int) -> AsyncIterator[grpc.aio.Channel]:
    """Open a separate connection: channels with equal options share one."""
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(certificates()[0].encode()),
        grpc.access_token_call_credentials(TOKEN),
    )
    options = [("grpc.ssl_target_name_override", names.TLS_SERVER_NAME), ("connection", number)]
    async with grpc.aio.secure_channel(
        f"127.0.0.1:{master.grpc_port}", credentials, options=options
    ) as channel:
        yield channel


async def _is_admitted(channel: grpc.aio.Channel) -> bool:
    watch = JobServiceStub(channel).WatchPlans(job_pb2.WatchPlansRequest(), timeout=SECONDS)
    try:
        await watch.read()
    except grpc.aio.AioRpcError:
        return False
    watch.cancel()
    return True
