"""Tables of jobs on a terminal."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobSpec, ElasticJobStatus
from elasticjob_api.meta import ObjectMeta
from elasticjob_cli.jobs.tables import jobs_table
from rich.console import Console


def test_a_long_message_takes_no_room_from_the_names_on_80_columns() -> None:
    status = ElasticJobStatus(
        phase="Failed", message="worker 0 failed and its restartLimit 3 is used up " * 3
    )
    job = ElasticJob(
        metadata=ObjectMeta(name="crashing-job", namespace="ns"),
        spec=ElasticJobSpec(framework="custom", replica_specs={}),
        status=status,
    )
    shown = Console(width=80)
    with shown.capture() as text:
        shown.print(jobs_table([job], 0.0, all_namespaces=False, wide=True))
    lines = text.get().splitlines()
    assert "crashing-job  Failed" in lines[1]
    assert max(map(len, lines)) <= 80
