"""What the report says of processes in standby, and of checkpoints in memory."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.step_report import StepReport
from elasticjob_master.controller import Controller
from elasticjob_master.core.accounting import StoredAccounting
from elasticjob_master.core.advice import state_memory_advice
from elasticjob_master.core.progress import Progress, StoredProgress
from elasticjob_master.core.rendezvous.members import Identity, Usage
from elasticjob_master.job_facts import JobFacts
from elasticjob_master.server.answers import report

from tests.support.master.config import master_config

GIB = 1 << 30
MEASURED: dict[str, Any] = {
    "save_seconds": 60.0,
    "saved_bytes": GIB // 2,
    "training_seconds": 600.0,
    "limit": 8 * GIB,
    "used": 4 * GIB,
}


async def said(*standby: tuple[int, str]) -> str:
    controller = Controller(framework="custom")
    for index, each in enumerate(standby):
        controller.register(Identity(f"job-worker-{index}", str(index), "worker", index))
        controller.heartbeat(str(index), Usage(), each)
    text: str = report(controller, master_config("job", "job-uid")).standby
    return text


async def test_it_says_how_many_members_have_some_and_why_the_others_have_none() -> None:
    found = await said((2, ""), (0, "no room"), (1, ""), (0, "no limit"), (0, "no room"), (0, ""))
    assert found == (
        "2 of 5 members have processes in standby; worker-1, worker-4: no room; worker-3: no limit"
    )


async def test_the_text_is_short_however_many_members_there_are() -> None:
    assert await said(*((0, "no room"),) * 9) == (
        "0 of 9 members have processes in standby; worker-0, worker-1, worker-2 and 6 more: no room"
    )
    assert (await said(*((0, f"no {number}") for number in range(9)))).endswith("; 6 other reasons")


async def test_nothing_is_said_if_no_member_wants_one() -> None:
    assert await said((0, ""), (0, "")) == ""


def test_it_names_the_share_of_the_training_the_size_and_the_memory() -> None:
    assert state_memory_advice(**MEASURED) == (
        "writing checkpoints takes 10% of the training: a job with spec.agent.stateMemory: 3072Mi "
        "would save up to that, and the members have room for it (4096 of 8192 MiB of memory are "
        "in use)"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"save_seconds": 5.0},
        {"training_seconds": 59.0},
        {"saved_bytes": 0},
        {"limit": None},
        {"used": 0},
        {"limit": 7 * GIB},
        {"used": 5 * GIB},
        {"saved_bytes": GIB},
    ],
    ids=str,
)
def test_nothing_is_said_without_room_without_a_gain_or_without_a_measurement(other: Any) -> None:
    assert state_memory_advice(**MEASURED | other) == ""


async def test_the_report_gives_it_by_what_the_members_use() -> None:
    facts = JobFacts(memory_for_state=8 * GIB)
    controller = Controller(framework="custom", facts=facts)
    controller.accounting.restore(StoredAccounting(began=1.0, seconds={"training": 600.0}))
    controller.progress.restore(StoredProgress(save_seconds=60.0, saved_bytes=GIB // 2))
    for index, used in enumerate((2 * GIB, 4 * GIB)):
        controller.register(Identity(f"job-worker-{index}", str(index), "worker", index))
        controller.heartbeat(str(index), Usage(memory_bytes=used))
    said = report(controller, master_config("job", "job-uid")).advice
    assert said.startswith("writing checkpoints takes 10% of the training")
    assert "4096 of 8192 MiB" in said


def test_the_time_of_saves_is_that_of_all_worlds_and_masters() -> None:
    first = Progress()
    second = Progress()
    first.add_report("a", StepReport(1, 1, save_seconds=2.0, saved_bytes=7), now=1.0, wall=1.0)
    first.add_report("a", StepReport(2, 1, save_seconds=3.0), now=2.0, wall=2.0)
    second.restore(first.stored())
    assert (second.save_seconds, second.saved_bytes) == (5.0, 7)
