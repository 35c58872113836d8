"""What the report says of processes in standby."""

from __future__ import annotations

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.members import Identity, Usage
from elasticjob_master.server.answers import report

from tests.support.master.config import master_config


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
