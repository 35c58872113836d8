"""What a worker knows about its pod's containers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob_api.times import format_time

from elasticjob_localcluster.node.container_process import ContainerProcess
from elasticjob_localcluster.node.pod_model import Pod
from elasticjob_localcluster.node.pod_status import Record, Terminated


@dataclass
class Records:
    """One record for each container, in the order of the spec."""

    init: list[Record]
    main: list[Record]

    def __iter__(self) -> Iterator[Record]:
        return iter([*self.init, *self.main])

    def __getitem__(self, name: str) -> Record:
        return next(record for record in self if record.name == name)

    def put(self, record: Record) -> None:
        """Replace the record of a container."""
        for records in (self.init, self.main):
            records[:] = [record if old.name == record.name else old for old in records]


def outcome(pod: Pod, record: Record, process: ContainerProcess) -> Terminated:
    """Return how a container that is over has ended."""
    how = process.exit
    assert how is not None
    container = next(spec for spec in (*pod.init_containers, *pod.containers) if spec["name"] == record.name)
    over_limit = process.out_of_memory and how.code != 0
    return Terminated(
        exit_code=how.code,
        reason="OOMKilled" if over_limit else "Completed" if how.code == 0 else "Error",
        message=process.message(container.get("terminationMessagePolicy", "File")),
        signal=how.signal,
        started_at=format_time(process.started_at),
        finished_at=format_time(how.at),
        container_id=record.container_id,
    )
