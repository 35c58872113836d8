"""Runs several training processes in one member: they start, stop, end and report together."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
from elasticjob_api import file_digests, names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import Run, python
from tests.support.fake_master import FakeMaster
from tests.support.local_job import LocalJob


async def begin(
    fake_master: FakeMaster, processes: int = 2, *, rank: int = 4, round_: int = 1
) -> None:
    """Start a world in which four processes of other members precede this member's."""
    members = [
        pb.Member(pod_name="other", processes=4),
        pb.Member(pod_name="job-worker-0", processes=processes),
    ]
    await fake_master.order(
        start=pb.Start(
            world=pb.World(round=round_, members=members),
            rank=rank,
            environment={"RANK": str(rank)},
            other_environments=[
                pb.ProcessEnvironment(variables={"RANK": str(rank + number)})
                for number in range(1, processes)
            ],
        )
    )


@pytest.mark.guarantee("several-processes-per-pod")
async def test_each_process_has_its_rank_and_each_output_line_names_its_process(
    fake_master: FakeMaster, run: Run
) -> None:
    variables = (
        names.ENV_RANK,
        names.ENV_WORLD_SIZE,
        names.ENV_LOCAL_RANK,
        names.ENV_LOCAL_SIZE,
        "RANK",
    )
    agent = await run(
        "sh", "-c", f"echo {' '.join(f'${name}' for name in variables)}; echo to the log >&2"
    )
    await begin(fake_master, 3)
    assert (await fake_master.exited(1)).exit_code == 0
    code, out, err = await fake_master.dismiss(agent)
    assert code == 0
    assert sorted(out.splitlines()) == ["[4] 4 7 0 3 4", "[5] 5 7 1 3 5", "[6] 6 7 2 3 6"]
    assert sorted(err.splitlines()) == ["[4] to the log", "[5] to the log", "[6] to the log"]


@pytest.mark.guarantee("references-in-commands")
async def test_references_in_command_and_environment_are_replaced_for_each_process(
    fake_master: FakeMaster, run: Run
) -> None:
    command = ["sh", "-c", 'echo "$0 $LOG of $(echo $ELASTICJOB_WORLD_SIZE)"']
    agent = await run(
        *command,
        "$(RANK):$(ELASTICJOB_ROUND):$$(RANK):$(NONE)",
        LOG="/log/$(ELASTICJOB_LOCAL_RANK)",
    )
    await begin(fake_master)
    lines = {await agent.line(), await agent.line()}
    assert lines == {"[4] 4:1:$(RANK):$(NONE) /log/0 of 6", "[5] 5:1:$(RANK):$(NONE) /log/1 of 6"}
    assert (await fake_master.exited(1)).exit_code == 0
    await begin(fake_master, 1, rank=0, round_=2)
    assert await agent.line() == "0:2:$(RANK):$(NONE) /log/0 of 5"
    assert (await fake_master.exited(2)).exit_code == 0


@pytest.mark.guarantee("references-in-commands")
async def test_a_member_ends_with_a_message_if_references_make_its_command_too_long(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("true", "$(TF_CONFIG)" * 100)
    await fake_master.begin(1, TF_CONFIG="x" * 100_000)
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (126, False)
    assert exited.message == (
        "elasticjob-agent: cannot run 'true': argument 1: with its references replaced it would "
        "have 10000000 characters, more than 6291452"
    )
    assert (await fake_master.dismiss(agent))[0] == 126


@pytest.mark.guarantee("one-process-of-a-pod-fails")
async def test_one_failed_process_ends_the_others_and_sets_the_pods_result(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run(
        "sh", "-c", "[ $RANK = 5 ] && { echo out of range >&2; exit 3; }; trap '' TERM; sleep 600"
    )
    await begin(fake_master)
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked, exited.message) == (3, False, "[5] out of range")
    assert (await fake_master.dismiss(agent))[0] == 3
    assert agent.termination == "[5] out of range"


@pytest.mark.guarantee("several-processes-per-pod")
async def test_a_member_is_finished_only_when_all_its_processes_are(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    agent = await run(
        "sh", "-c", f"[ $RANK = 5 ] || until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done"
    )
    await begin(fake_master)
    assert await agent.line() == "[5] done"
    assert not fake_master.received.of_kind("exited")
    (tmp_path / "go").touch()
    assert await agent.line() == "[4] done"
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (0, False)


STOPPING = """
    import os, time
    import elasticjob

    here = elasticjob.world()
    elasticjob.should_stop()
    elasticjob.members()  # answered: the agent has read that this process listens for stops
    print("ready", flush=True)
    while not elasticjob.should_stop():
        time.sleep(0.01)
    if here.local_rank == 1:
        os._exit({code})  # without a confirmation
    time.sleep(0.5)  # saves
    print("saved", flush=True)
    elasticjob.confirm_stop()
"""


@pytest.mark.guarantee("one-process-of-a-pod-fails")
@pytest.mark.parametrize("code", [0, 7])
async def test_one_confirmation_of_a_stop_counts_for_all_and_a_failure_leaves_time_to_save(
    fake_master: FakeMaster, run: Run, tmp_path: Path, code: int
) -> None:
    agent = await run(*python(tmp_path, STOPPING.format(code=code)))
    await begin(fake_master)
    assert {await agent.line(), await agent.line()} == {"[4] ready", "[5] ready"}
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=20))
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (code, True)
    assert await agent.line() == "[4] saved"


async def test_confirming_a_stop_before_any_request_does_not_end_the_training(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    await run(
        *python(
            tmp_path,
            "import elasticjob\nif elasticjob.world().local_rank == 1: elasticjob.confirm_stop()",
        )
    )
    await begin(fake_master)
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (0, True)


@pytest.mark.guarantee("program-ignores-stop-requests")
async def test_processes_that_ignore_the_stop_request_are_all_terminated(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("sh", "-c", "echo up; sleep 600")
    await begin(fake_master)
    assert {await agent.line(), await agent.line()} == {"[4] up", "[5] up"}
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=20))
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (143, True)


@pytest.mark.guarantee("program-ignores-stop-requests")
async def test_a_program_that_ignores_stop_requests_trains_until_its_sigterm_delay(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    """The program ends by itself after the stop arrived; an early SIGTERM would kill it."""
    script = f"until [ -e {tmp_path}/asked ]; do sleep 0.05; done; echo snapshot"
    agent = await run("sh", "-c", script, **{names.ENV_SIGTERM_DELAY_SECONDS: "600"})
    await begin(fake_master, 1)
    await fake_master.order(stop=pb.Stop(round=1, grace_seconds=600))
    await fake_master.handled()
    (tmp_path / "asked").touch()
    exited = await fake_master.exited(1)
    assert (exited.exit_code, exited.asked) == (0, True)
    assert await agent.line() == "snapshot"


@pytest.mark.guarantee("several-processes-per-pod")
async def test_samples_of_all_processes_add_up_and_steps_count_once(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    training = """
        import time
        import elasticjob

        for step in range(1, 21):
            time.sleep(0.02)
            elasticjob.report_step(step, total=20, samples=8)
    """
    await run(*python(tmp_path, training))
    await begin(fake_master, 3)
    await fake_master.exited(1)
    reports = fake_master.received.of_kind("step")
    assert max(report.step for report in reports) == 20
    assert sum(report.samples for report in reports) == 3 * 20 * 8
    assert sum(report.steps for report in reports) in (19, 20), (
        "the first report of all has no step before it"
    )


MEETING = """
    import time
    import elasticjob

    here, members = elasticjob.world(), elasticjob.members()
    me = members[here.rank]
    assert len(members) == here.size, members
    assert (me.index, me.local_rank) == (here.index, here.local_rank), (here, me)
    for number in range(2):
        if here.rank == here.size - 1:
            time.sleep(0.5)
            elasticjob.KeyValue().set(f"late-{number}", b"here")
        elasticjob.barrier("all", timeout=60)
        late = elasticjob.KeyValue().get(f"late-{number}")
        assert late == b"here", "the barrier opened before the last process arrived"
    if here.local_rank == 0:
        try:
            elasticjob.barrier("alone", timeout=0.3)
        except TimeoutError as late:
            print(f"late: {late}", flush=True)
    data = elasticjob.shards("train", size=60, shard_size=5, restore=b"")
    for shard in data:
        print(f"shard {shard.id}", flush=True)
        data.done(shard)
    elasticjob.barrier("end", timeout=60)
    print(f"rank {here.rank} of {here.size} is {here.local_rank} of {here.local_size}", flush=True)
"""


@pytest.mark.guarantee("several-processes-per-pod")
def test_processes_of_all_members_meet_and_share_the_data_through_a_real_master(
    local_job: LocalJob,
) -> None:
    script = local_job.folder / "train.py"
    script.write_text(textwrap.dedent(MEETING))
    local_job.start_master()
    slots = (2, 3)
    agents = [
        local_job.start_agent(
            index, sys.executable, "-u", str(script), **{names.ENV_SLOTS: str(number)}
        )
        for index, number in enumerate(slots)
    ]
    local_job.wait("the agents end", lambda: all(one.poll() is not None for one in agents))
    log = local_job.log()
    assert [one.returncode for one in agents] == [0, 0], log
    places = {
        (int(rank), int(local), int(size))
        for rank, local, size in re.findall(r"rank (\d) of 5 is (\d) of (\d)", log)
    }
    # The first to register is rank 0.
    sizes = (2, 2, 3, 3, 3) if (1, 1, 2) in places else (3, 3, 3, 2, 2)
    locals_ = [*range(sizes[0]), *range(sizes[-1])]
    assert places == set(zip(range(5), locals_, sizes, strict=True)), log
    assert sorted(map(int, re.findall(r"shard (\d+)$", log, re.MULTILINE))) == list(range(12)), log
    assert re.search(
        r"late: after 0.3 s: barrier 'alone': \d of \d processes of this pod have not arrived", log
    ), log


@pytest.mark.guarantee("submitted-files-are-those-of-their-author")
async def test_a_replaced_file_is_not_run_and_the_reason_is_reported(
    fake_master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    script = files / "train.sh"
    script.write_text("echo submitted")
    digests = file_digests.encoded({script.name: script.read_bytes()})
    agent = await run("sh", str(script), **{names.ENV_FILES_SHA256: digests})
    await begin(fake_master, 1)
    assert (await fake_master.exited(1)).exit_code == 0
    assert await agent.line() == "submitted"
    script.write_text("echo replaced")
    await begin(fake_master, 1, round_=2)
    exited = await fake_master.exited(2)
    assert exited.exit_code == 126
    code, out, err = await fake_master.dismiss(agent)
    assert (code, out) == (126, "")
    assert "train.sh has SHA-256" in err
    assert "replaced the ConfigMap" in agent.termination
