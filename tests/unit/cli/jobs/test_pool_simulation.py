"""`elasticjob pool simulate` plays a trace with a pool's decisions, and bounds what it reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from elasticjob_api.elasticpool import ElasticPool, ElasticPoolSpec
from elasticjob_api.meta import ObjectMeta
from elasticjob_cli.jobs.pool_traces import read_trace
from elasticjob_client.errors import ClientError
from elasticjob_operator.core.sharing.elastic_pool import rules_of

from tests.support.command_line import elasticjob

POOL = """
apiVersion: elasticjob.dev/v1alpha1
kind: ElasticPool
metadata: {name: gpus}
spec:
  capacity: {nvidia.com/gpu: 16}
  policy: Throughput
  cooldownSeconds: 300
"""
TRACE = """arrival,members,seconds,name,min,throughput
0,16,7200,night,2,1:100 4:360 16:1000
600,8,900,day-1,,
660,8,900,day-2,,
720,8,1800,day-3,4,
"""


async def simulated(folder: Path, trace: str, *options: str, pool: str = POOL) -> tuple[int, str]:
    """Return exit code, and output or errors."""
    (folder / "pool.yaml").write_text(pool)
    (folder / "jobs.csv").write_text(trace)
    code, output, errors = await elasticjob(
        "pool", "simulate", "pool.yaml", "--trace", "jobs.csv", *options, folder=folder
    )
    return code, output or errors


async def test_a_trace_is_played_with_a_pool_and_with_fixed_sizes(tmp_path: Path) -> None:
    code, output = await simulated(tmp_path, TRACE)
    titles, fixed, pooled = output.splitlines()
    assert (code, titles.split()[0]) == (0, "JOBS")
    assert fixed.startswith("first come, fixed sizes ")
    assert fixed.endswith(" 0.00          0      -")
    assert pooled.startswith("ElasticPool gpus, Throughput ")
    assert "night (1." in pooled
    _, output = await simulated(tmp_path, TRACE, "-o", "json")
    first, second = json.loads(output)
    assert first["seconds"].keys() == {"night", "day-1", "day-2", "day-3"}
    assert first["seconds"]["night"] == 7230  # the start takes 30 s
    assert second["meanSeconds"] < first["meanSeconds"]
    assert second["worstJob"] == "night"


async def test_a_higher_priority_and_a_dear_change_count(tmp_path: Path) -> None:
    trace = "arrival,members,seconds,name,priority\n0,16,3600,low,0\n60,16,3600,high,9\n"
    pool = POOL.replace("Throughput", "Priority")
    _, output = await simulated(tmp_path, trace, "-o", "json", pool=pool)
    cheap = json.loads(output)[1]["seconds"]
    assert cheap["high"] < cheap["low"]
    _, output = await simulated(tmp_path, trace, "-o", "json", "--change-seconds=600", pool=pool)
    assert json.loads(output)[1]["seconds"]["low"] > cheap["low"]


@pytest.mark.parametrize(
    ("trace", "error"),
    [
        ("arrival,members\n0,1\n", "column 'seconds' is missing; the first line names columns"),
        ("arrival,members,seconds,gpus\n0,1,9,1\n", "column 'gpus' is not known"),
        ("arrival,members,seconds\n", "jobs.csv has no jobs"),
        ("arrival,members,seconds\n0,0,9\n", "line 2: members '0': give a number from 1 to 10000"),
        ("arrival,members,seconds\n0,1.5,9\n", "members '1.5': give a whole number"),
        ("arrival,members,seconds\nnan,1,9\n", "arrival 'nan': give a number from 0 to"),
        ("arrival,members,seconds\n0,1,inf\n", "seconds 'inf': give a number from 1 to"),
        ("arrival,members,seconds\n0,17,9\n", "members '17': they exceed spec.capacity"),
        ("arrival,members,seconds,min\n0,2,9,3\n", "min '3': give a number from 1 to 2"),
        ("arrival,members,seconds\n0,1,9,9\n", "line 2: more cells than columns"),
        ("arrival,members,seconds,name\n0,1,9,a\n0,1,9,a\n", "line 3: name 'a': another line"),
        ("arrival,members,seconds,throughput\n0,1,9,1:0\n", "throughput '1:0': give at most 64"),
        (
            "arrival,members,seconds,throughput\n0,16,90000,1:0.00001 16:99999\n",
            "seconds '90000': with min it takes longer than",
        ),
        ("arrival,members,seconds\n" + "0,1,9\n" * 10_001, "jobs.csv has more than 10000 jobs"),
        ("arrival,members,seconds\n0,1,9" + " " * (16 << 20), "has more than 16777216 bytes"),
        ('arrival,members,seconds\n0,1,"9', "line 2: no CSV: unexpected end of data"),
    ],
)
def test_a_trace_that_cannot_be_played_is_refused_by_line_and_column(
    trace: str, error: str, tmp_path: Path
) -> None:
    (tmp_path / "jobs.csv").write_text(trace)
    pool = ElasticPool(ObjectMeta(), ElasticPoolSpec(capacity={"nvidia.com/gpu": 16}))
    with pytest.raises(ClientError, match=re.escape(error)):
        read_trace(tmp_path / "jobs.csv", pool, *rules_of(pool, {}), 30.0)


@pytest.mark.parametrize(
    ("pool", "error"),
    [
        ("kind: ElasticJob", "pool.yaml is not the manifest of one ElasticPool"),
        ("kind: ElasticPool\nmetadata: {}", "spec.capacity is not given"),
        (POOL.replace("Throughput", "Best"), "Invalid enum value 'Best'"),
        (POOL.replace("16", "a"), "'a' is not a quantity"),
    ],
)
async def test_a_manifest_that_is_no_pool_with_a_capacity_is_refused(
    pool: str, error: str, tmp_path: Path
) -> None:
    code, errors = await simulated(tmp_path, TRACE, pool=pool)
    assert code != 0
    assert error in errors
    assert "Traceback" not in errors


async def test_a_pool_of_several_resources_needs_what_a_member_takes_of_each(
    tmp_path: Path,
) -> None:
    pool = POOL.replace("16", "16, cpu: 64")
    code, errors = await simulated(tmp_path, TRACE, pool=pool)
    assert code != 0
    assert "line 2: cpu '': give what a member takes, such as 500m, 2 or 4Gi" in errors
    trace = "arrival,members,seconds,cpu,nvidia.com/gpu\n0,2,90,32,8\n0,1,90,32,4\n"
    code, output = await simulated(tmp_path, trace, "-o", "json", pool=pool)
    assert code == 0
    assert json.loads(output)[0]["seconds"]["line-3"] > 120  # it waits for CPUs
