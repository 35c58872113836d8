"""Following logs ends when its reader does; the server is one on the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_client.errors import ClientError, NoLogs
from elasticjob_client.job_logs import job_logs
from elasticjob_client.logs import LogOptions
from elasticjob_client.members import Choice

from tests.support.played_api import PlayedApi, listed, played_job

LINES = 5000
POD: Json = {
    "metadata": {
        "name": "a-worker-0",
        "namespace": "ns",
        "uid": "p",
        "resourceVersion": "1",
        "labels": {names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0"},
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": "ElasticJob",
                "name": "a",
                "uid": "u",
                "controller": True,
            }
        ],
    },
    "spec": {"containers": [{"name": "train"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "train", "state": {"running": {}}}],
    },
}


def api(*pods: Json, phase: str = "Running", deleted: Sequence[str] = ()) -> PlayedApi:
    """Return an API server with a job and its pods, which write many lines."""
    text = "".join(f"2026-01-01T00:00:00Z line {each}\n" for each in range(LINES))
    found = [each["metadata"]["name"] for each in pods]
    logs = {f"GET pods/{name}/log": text for name in found if name not in deleted}
    job = played_job(phase, replicaStatuses={"worker": {"desired": 1, "highestIndex": 1}})
    return PlayedApi({"GET elasticjobs/a": job, "GET pods": listed(*pods)} | logs)


def pod(index: int, **status: Any) -> Json:
    """Return a pod with another index and status."""
    labels = {names.LABEL_ROLE: "worker", names.LABEL_INDEX: str(index)}
    metadata = POD["metadata"] | {"name": f"a-worker-{index}", "uid": f"p{index}", "labels": labels}
    return POD | {"metadata": metadata, "status": status}


REJECTED = pod(0, phase="Failed", reason="OutOfcpu", message="node has too little cpu")
WITHOUT_IMAGE = pod(
    1,
    phase="Pending",
    containerStatuses=[
        {"name": "train", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no x"}}}
    ],
)


async def test_a_reader_that_has_enough_ends_it_although_many_lines_wait(tmp_path: Path) -> None:
    async with api(POD).cluster(tmp_path) as cluster:
        followed = job_logs(
            cluster, "a", Choice(every=True), LogOptions(), follow=True, notify=print
        )
        async with asyncio.timeout(30), aclosing(followed) as lines:
            assert (await anext(lines)).text == "line 0"
            for _ in range(10):  # turns of the loop: as many lines come as there is room for
                await asyncio.sleep(0)


async def test_a_user_without_permission_to_list_pods_gets_one_message(tmp_path: Path) -> None:
    forbidden = PlayedApi({"GET elasticjobs/a": played_job(), "GET pods": 403})
    async with forbidden.cluster(tmp_path) as cluster:
        followed = job_logs(cluster, "a", Choice(), LogOptions(), follow=True, notify=print)
        with pytest.raises(ClientError, match="pods of ns"):
            await anext(followed)


async def texts(
    directory: Path, server: PlayedApi, choice: Choice, *, follow: bool = False
) -> tuple[int, list[str], ClientError | None]:
    """Read logs to their end; return the number of lines, the notices and the error."""
    notices: list[str] = []
    count = 0
    async with server.cluster(directory) as cluster:
        found = job_logs(cluster, "a", choice, LogOptions(), follow=follow, notify=notices.append)
        try:
            async with asyncio.timeout(60), aclosing(found) as lines:
                async for _ in lines:
                    count += 1
        except ClientError as error:
            return count, notices, error
    return count, notices, None


@pytest.mark.parametrize("follow", [False, True])
async def test_pods_that_cannot_start_have_no_logs_and_say_why(
    tmp_path: Path, follow: bool
) -> None:
    server = api(REJECTED, WITHOUT_IMAGE, phase="Failed")
    count, notices, error = await texts(tmp_path, server, Choice(every=True), follow=follow)
    assert (count, notices) == (
        0,
        [
            "pod a-worker-0 has no log: OutOfcpu: node has too little cpu",
            "pod a-worker-1 has no log: ImagePullBackOff: no x",
        ],
    )
    assert isinstance(error, NoLogs)


async def test_a_member_that_does_not_exist_is_an_error_after_the_logs_of_the_others(
    tmp_path: Path,
) -> None:
    count, _, error = await texts(tmp_path, api(POD), Choice(ranks=(0, 7)))
    assert (count, str(error)) == (LINES, "there is no member of rank 7 now")


async def test_a_pod_without_a_log_is_no_error_beside_one_with_a_log(tmp_path: Path) -> None:
    server = api(POD, WITHOUT_IMAGE)
    count, notices, error = await texts(tmp_path, server, Choice(every=True))
    assert (count, error) == (LINES, None)
    assert notices == ["pod a-worker-1 has no log: ImagePullBackOff: no x"]


RUNNING = pod(1, phase="Running", containerStatuses=POD["status"]["containerStatuses"])


async def test_a_pod_that_is_deleted_before_its_log_is_read_is_no_error_beside_others(
    tmp_path: Path,
) -> None:
    server = api(POD, RUNNING, deleted=["a-worker-1"])
    count, notices, error = await texts(tmp_path, server, Choice(every=True))
    assert (count, error) == (LINES, None)
    assert notices == ["pod a-worker-1 has no log: it has been deleted"]


async def test_there_is_no_log_if_every_chosen_pod_was_deleted_meanwhile(tmp_path: Path) -> None:
    server = api(RUNNING, deleted=["a-worker-1"])
    count, _, error = await texts(tmp_path, server, Choice(every=True))
    assert count == 0
    assert isinstance(error, NoLogs)


async def test_who_waits_for_a_log_reads_why_there_is_none_yet(tmp_path: Path) -> None:
    noticed = asyncio.Event()

    def notify(text: str) -> None:
        if "ImagePullBackOff" in text:
            noticed.set()

    async with api(WITHOUT_IMAGE).cluster(tmp_path) as cluster:
        choice = Choice(role="worker")
        found = job_logs(cluster, "a", choice, LogOptions(), follow=True, notify=notify)
        reading = asyncio.ensure_future(anext(found))
        try:
            async with asyncio.timeout(60):
                await noticed.wait()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await found.aclose()
