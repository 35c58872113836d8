"""Checks when the master writes the progress, and what it does before and after a write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from elasticjob_api.step_report import StepReport
from elasticjob_kube.errors import TryLater
from elasticjob_master.cluster import progress_writer
from elasticjob_master.cluster.progress_writer import ProgressWriter
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.commands import Command, Exit, Start
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.job_facts import JobFacts

from tests.support.master.config import master_config
from tests.support.wait import until

UID = "uid-0"
CONFIG = master_config("job", "job-uid")


class Server:
    """Records the writes of the progress, each with the commands that were sent before it."""

    def __init__(self, sent: list[Command], *, fails: bool) -> None:
        self.sent = sent
        self.fails = fails
        self.writes: list[tuple[dict[str, Any], list[Command]]] = []

    async def apply(
        self, _kind: object, _namespace: str, _name: str, body: dict[str, Any], **_: str
    ) -> None:
        await asyncio.sleep(0)
        self.writes.append((body["status"]["progress"], list(self.sent)))
        if self.fails:
            raise TryLater(503, "", "not now")


async def test_members_that_end_after_the_same_step_cost_one_write_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_writer, "PROGRESS_SECONDS", 1e9)  # no other write is ever due
    facts = JobFacts(sizes={"worker": RoleSize(3, 3)})
    controller = Controller(framework="custom", facts=facts, holds_exits=True)
    sent: list[Command] = []
    server = Server(sent, fails=False)
    writer = ProgressWriter(server, CONFIG, controller)  # type: ignore[arg-type]
    uids = ("uid-0", "uid-1", "uid-2")
    members = {}
    for index, uid in enumerate(uids):
        controller.register(Identity(f"job-worker-{index}", uid, "worker", index))
        member = controller.connect(MemberConnected(uid), sent.append)
        assert member is not None
        members[uid] = member
    await until("starts", lambda: sum(isinstance(each, Start) for each in sent) == len(uids))
    writing = asyncio.create_task(writer.run())
    for uid in uids:
        controller.handle(ProcessStarted(uid, 1))
        controller.step(members[uid], StepReport(1, 300, 300, samples=8.0, seconds=1.0, steps=1))
    for uid in uids:
        controller.exited(members[uid], ProcessExited(uid, 1, 0))
        await until("its exit", lambda: Exit(uid) in sent)  # noqa: B023 (called in this round)
    assert [written["step"] for written, _ in server.writes] == [300]
    writing.cancel()


@pytest.mark.guarantee("last-step-is-shown")
@pytest.mark.parametrize("fails", [False, True])
async def test_an_agent_ends_after_its_last_step_is_written(*, fails: bool) -> None:
    facts = JobFacts(sizes={"worker": RoleSize(1, 1)})
    controller = Controller(framework="custom", facts=facts, holds_exits=True)
    sent: list[Command] = []
    server = Server(sent, fails=fails)
    writer = ProgressWriter(server, CONFIG, controller)  # type: ignore[arg-type]
    identity = Identity("job-worker-0", UID, "worker", 0, address="10.0.0.1")
    controller.register(identity)
    member = controller.connect(MemberConnected(UID), sent.append)
    assert member is not None
    await until("a start", lambda: sent, lambda sent: any(isinstance(c, Start) for c in sent))
    writing = asyncio.create_task(writer.run())
    controller.handle(ProcessStarted(UID, 1))
    controller.step(member, StepReport(1, 7, 300))
    await until("the first write", lambda: server.writes)

    controller.step(member, StepReport(1, 300, 300))
    controller.exited(member, ProcessExited(UID, 1, 0))

    await until("an exit", lambda: sent, lambda sent: Exit(UID) in sent)
    written, sent_before = server.writes[-1]
    assert written["step"] == 300
    assert Exit(UID) not in sent_before
    writing.cancel()


@pytest.mark.guarantee("training-hangs")
async def test_a_stall_and_its_end_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_writer, "PROGRESS_SECONDS", 1e9)  # no other write is ever due
    controller = Controller(framework="custom", facts=JobFacts())
    server = Server([], fails=False)
    writer = ProgressWriter(server, CONFIG, controller)  # type: ignore[arg-type]
    controller.progress.add_report(UID, StepReport(1, 7), now=controller.now(), wall=1.0)
    writing = asyncio.create_task(writer.run())
    for since in (None, 60.0, None):
        controller.health_monitor.stall.since = since
        await until(
            "it is written",
            lambda: server.writes and "stalledSince" in server.writes[-1][0],
            lambda stalled: stalled == (since is not None),  # noqa: B023 (called in this round)
        )
    writing.cancel()
    assert [written.get("stalledSince") for written, _ in server.writes] == [
        None, "1970-01-01T00:01:00Z", None,
    ]  # fmt: skip
