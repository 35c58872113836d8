"""Runs `elasticjob.barrier` and `elasticjob.KeyValue` with real agents and a real master."""

from __future__ import annotations

import sys
import textwrap

import pytest

from tests.support.local_job import LocalJob

TRAINING = """
    import os, time
    import elasticjob

    here, store = elasticjob.world(), elasticjob.KeyValue()
    keys = [f"address-{rank}" for rank in range(here.size)]
    store.set(keys[here.rank], f"{here.rank}:\\0{here.address}".encode())
    values = store.wait(*keys, timeout=60)
    assert [int(value.split(b":")[0]) for value in values] == list(range(here.size)), values
    winner = store.compare_and_set("leader", None, str(here.rank).encode())
    assert store.get("leader") == winner and store.get("nothing") is None
    if here.rank == 1:
        try:
            elasticjob.barrier("alone", timeout=0.3)
        except TimeoutError as late:
            print(f"late: {late}", flush=True)
    for number in range(4):
        store.add("sum", 2)
        elasticjob.barrier("added", timeout=60)
        total = str((number + 1) * 2 * here.size).encode()
        assert store.get("sum") == total, (number, store.get("sum"))
        elasticjob.barrier("looked", timeout=60)
        if number == 1:
            print(f"rank {here.rank} is half through", flush=True)
    try:
        store.set("big", bytes(70_000))
    except elasticjob.AgentError as refused:
        print(f"refused: {refused}", flush=True)
    elasticjob.barrier("end", timeout=60)
    if here.rank == 0:
        assert store.delete("sum") and not store.delete("sum")
    print(f"rank {here.rank} of {here.size} is done", flush=True)
"""


@pytest.mark.guarantee("master-can-be-replaced")
@pytest.mark.thorough
def test_processes_rendezvous_through_a_master_that_is_killed_meanwhile(
    local_job: LocalJob,
) -> None:
    script = local_job.folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    local_job.start_master()
    agents = [local_job.start_agent(index, sys.executable, "-u", str(script)) for index in range(2)]
    local_job.wait_for_line("is half through")
    local_job.kill_master()
    local_job.start_master()
    local_job.wait("the agents end", lambda: all(one.poll() is not None for one in agents))
    log = local_job.log()
    assert [one.returncode for one in agents] == [0, 0], log
    assert "rank 0 of 2 is done" in log, log
    assert "rank 1 of 2 is done" in log, log
    assert (
        "late: after 0.3 s: barrier 'alone': 1 of 2 have not arrived, such as job-worker-" in log
    ), log
    assert (
        "refused: INVALID_ARGUMENT: value of 'big' has 70000 bytes; it must have at most 65536"
        in log
    ), log
