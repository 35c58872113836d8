"""Checks the host files that a launcher's command reads, with a real agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_agent import host_files
from elasticjob_api import names
from elasticjob_api.v1 import discovery_pb2 as pb

from tests.support.agent_process import Run
from tests.support.fake_master import FakeMaster
from tests.support.wait import until

LAUNCHER = {names.ENV_HOST_FILES: names.HOST_FILES_DIRECTORY, names.ENV_ROLE: "launcher"}
WITH_SHELL = {**LAUNCHER, names.ENV_REMOTE_SHELL: "1"}
FIRST = pb.Host(name="job-worker-0", slots=2, address="10.0.0.7")
SECOND = pb.Host(name="job-worker-1-4", slots=1, address="10.0.0.9")


@pytest.mark.guarantee("host-files")
async def test_host_files_exist_at_the_commands_start_and_follow_every_change(
    fake_master: FakeMaster, run: Run
) -> None:
    fake_master.publish(FIRST)
    script = 'echo $ELASTICJOB_HOST_FILES; cat "$ELASTICJOB_HOST_FILES/hostfile"; exec sleep 1000'
    agent = await run("sh", "-c", script, **WITH_SHELL)
    await fake_master.begin(1)
    folder = Path(await agent.line())
    assert await agent.line() == "job-worker-0:2"
    fake_master.publish(FIRST, SECOND)
    form = folder / "hostfile"
    await until(
        "the new host", form.read_text, lambda text: text == "job-worker-0:2\njob-worker-1-4:1\n"
    )
    slots = folder / "deepspeed-hostfile"
    await until(
        "it", slots.read_text, lambda text: text == "job-worker-0 slots=2\njob-worker-1-4 slots=1\n"
    )
    assert {path.name for path in folder.iterdir() if path.name.startswith(".")} == set()


@pytest.mark.guarantee("host-files")
async def test_the_files_follow_the_next_master(fake_master: FakeMaster, run: Run) -> None:
    agent = await run("sh", "-c", "echo $ELASTICJOB_HOST_FILES; exec sleep 1000", **WITH_SHELL)
    await fake_master.begin(1)
    form = Path(await agent.line(), "hostfile")
    assert form.read_text() == "job-worker-0:2\n"
    await fake_master.stop()
    fake_master.publish(SECOND)
    assert form.read_text() == "job-worker-0:2\n", "without a master the last list stays"
    await fake_master.start()
    await until(
        "the list of the next master", form.read_text, lambda text: text == "job-worker-1-4:1\n"
    )


async def test_a_launcher_with_its_own_ssh_finds_addresses(
    fake_master: FakeMaster, run: Run
) -> None:
    fake_master.publish(FIRST, SECOND)
    script = (
        'cd "$ELASTICJOB_HOST_FILES"; cat hostfile deepspeed-hostfile; '
        "./discover_hosts.sh; sh discover_hosts.sh"
    )
    agent = await run("sh", "-c", script, **LAUNCHER)
    out, err = await fake_master.complete(agent)
    hosts = "10.0.0.7:2\n10.0.0.9:1\n"
    assert (out, err) == (f"{hosts}10.0.0.7 slots=2\n10.0.0.9 slots=1\n{hosts}{hosts}", "")


@pytest.mark.guarantee("stock-horovodrun")
@pytest.mark.parametrize(
    ("set_by_the_user", "seconds"),
    [
        ({}, "600"),
        ({"HOROVOD_ELASTIC_TIMEOUT": "90"}, "90"),
        ({"HOROVOD_ELASTIC_TIMEOUT": "90", "HOROVOD_START_TIMEOUT": "45"}, "45"),
    ],
)
async def test_horovodrun_checks_its_hosts_for_as_long_as_it_waits_for_them(
    fake_master: FakeMaster, run: Run, set_by_the_user: dict[str, str], seconds: str
) -> None:
    agent = await run("sh", "-c", "echo $HOROVOD_START_TIMEOUT", **WITH_SHELL, **set_by_the_user)
    assert (await fake_master.complete(agent))[0] == f"{seconds}\n"


async def test_the_script_prints_the_names_that_the_agents_ssh_resolves(
    fake_master: FakeMaster, run: Run
) -> None:
    agent = await run("sh", "-c", '"$ELASTICJOB_HOST_FILES/discover_hosts.sh"', **WITH_SHELL)
    assert (await fake_master.complete(agent))[0] == "job-worker-0:2\n"


async def test_the_command_starts_even_without_a_host_list(
    fake_master: FakeMaster, run: Run
) -> None:
    fake_master.answers_watches = False
    agent = await run("sh", "-c", 'ls "$ELASTICJOB_HOST_FILES" | grep host', **WITH_SHELL)
    assert (await fake_master.complete(agent))[0] == "discover_hosts\ndiscover_hosts.sh\n"


@pytest.mark.guarantee("host-files")
def test_host_files_are_written_only_to_a_mounted_folder(
    tmp_path: Path,
) -> None:
    mounted = Path("/dev/shm")
    assert host_files.folder(mounted, tmp_path) == mounted
    assert host_files.folder(tmp_path, Path("own")) == Path("own")
    assert host_files.folder(Path(names.HOST_FILES_DIRECTORY), tmp_path) == tmp_path
