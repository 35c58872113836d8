"""Serves the job's page with answers that a test makes, without a master."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import job_pb2 as pb
from elasticjob_dashboard.data import Sections, page_data, page_sections
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams

from tests.support.served_app import served_app

HOUR = 3600.0


class ServedPage:
    """A server of the page.

    Attributes:
        answers: what is shown.
        ended: the job has ended, and these are its last answers.
        streams: the streams that the server holds.
        url: the address of the page.
    """

    def __init__(self, *, streams: int) -> None:
        self.answers = answers_of()
        self.ended = False
        self.streams = Streams(self._sections, most=streams, seconds=0.1)
        self.url = ""

    async def _sections(self) -> Sections:
        return page_sections(self.answers, ended=self.ended)

    async def show_page(self, _: web.Request) -> web.Response:
        page = Page(reads_logs=True)
        return web.Response(text=page.text, content_type="text/html", headers=page.headers)

    async def show_data(self, _: web.Request) -> web.Response:
        body = page_data(self.answers, ended=self.ended)
        return web.Response(body=body, content_type="application/json")

    async def show_changes(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.serve(request, {})

    async def show_log(self, request: web.Request) -> web.Response:
        lines = [f"<b>{request.query['pod']}</b>", "\x1b[31mred\x1b[0m"]
        return web.json_response({"lines": lines, "problem": ""})

    async def show_logs(self, request: web.Request) -> web.Response:
        members = [each.pod_name for each in self.answers.members.members]
        lines = [f"{each} \x1b[31mstep {number}" for each in members for number in range(200)]
        found = [each for each in lines if request.query["find"] in each]
        return web.Response(text="\n".join([*found, "elasticjob: pod x has been deleted", ""]))

    async def show_other(self, request: web.Request) -> web.Response:
        """Answer with a job that began two hours earlier and was half as fast."""
        if not request.query["job"]:
            return web.json_response({"names": ["job", "earlier"]})
        if request.query["job"] != "earlier":
            return web.Response(status=503, text="there is no such job\n")
        other = answers_of()
        for sample in other.history.samples:
            sample.time -= 2 * HOUR
            sample.samples_per_second /= 2
            sample.step *= 2
        other.report.began = other.history.samples[0].time
        sections = page_sections(other)
        body = b'{"samples":%b,"report":%b}' % (sections["samples"], sections["report"])
        return web.Response(body=body, content_type="application/json")


@asynccontextmanager
async def served_page(*, streams: int = 4) -> AsyncIterator[ServedPage]:
    """Serve the page at a port of 127.0.0.1."""
    served = ServedPage(streams=streams)
    app = web.Application()
    app.add_routes(
        [
            web.get("/", served.show_page),
            web.get("/status", served.show_data),
            web.get("/stream", served.show_changes),
            web.get("/log", served.show_log),
            web.get("/logs", served.show_logs),
            web.get("/other", served.show_other),
        ]
    )
    async with served_app(app) as port:
        served.url = f"http://127.0.0.1:{port}/"
        try:
            yield served
        finally:
            served.streams.end()


def answers_of(*, text: str = "", members: int = 12) -> pb.StoredAnswers:
    """Return the answers of a job that grew in the last hour.

    Args:
        text: is in each name and message that a job or its users choose.
        members: the number of its members.
    """
    now = time.time()
    answers = pb.StoredAnswers(job_uid="u", time=now)
    status = answers.status
    status.namespace = "ns"
    status.job_name = "job"
    status.phase = pb.JOB_PHASE_TRAINING
    status.world_size = members
    status.progress.step = 100
    status.progress.metrics[f"loss{text}"] = 0.5
    status.datasets.add(dataset=f"train{text}", total=10, done=4, leased=2, waiting=3, failed=1)
    for number in range(101):
        answers.history.samples.add(
            time=now - HOUR + number * HOUR / 100,
            world_size=members if number > 50 else 1,
            step=number,
            samples_per_second=100.0 * (1 + (number > 50)),
            metrics={f"loss{text}": 1 / (number + 1)},
            spent=spent_until(number),
        )
    answers.history.events.add(time=now - HOUR / 4, reason="ProcessFailed", message=f"no{text}")
    answers.plans.plans.add(
        name="job-auto-0",
        source="Auto",
        phase="Succeeded",
        reason=f"more is faster{text}",
        created=now - HOUR / 2,
    )
    for index in range(members):
        answers.members.members.add(
            pod_name=f"job-worker-{index}{text}",
            pod_uid=str(index),
            node_name=f"node{text}",
            state=agent_pb2.MEMBER_STATE_TRAINING,
            straggler=index == 1,
        )
        answers.ranks[str(index)] = index
    answers.member_counts["training"] = members
    _add_scaling(answers.autoscaling, text)
    answers.report.goodput = 0.75
    answers.report.time.training = 45 * 60
    answers.report.time.waiting = 15 * 60
    answers.report.outcome.message = f"trains{text}"
    answers.report.advice = "saving takes 9% of the training"
    return answers


def spent_until(number: int) -> pb.TimeSpent:
    """Return the time spent up to a sample: the job waited before the 51st."""
    waiting = 30.0 if number > 50 else 0.0
    return pb.TimeSpent(training=number * HOUR / 100 - waiting, waiting=waiting)


def _add_scaling(known: pb.Autoscaling, text: str) -> None:
    known.enabled = True
    known.role = "worker"
    known.waiting_for = f"a member{text}"
    known.best_from = 8
    known.best_to = 12
    for size in (1, 12):
        known.sizes.add(size=size, samples_per_second=100.0 * size, relative_error=0.05)
    for size in range(1, 17):
        rate = 100.0 * size
        known.curve.add(size=size, expected=rate, expected_from=0.9 * rate, expected_to=1.1 * rate)
