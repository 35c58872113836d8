"""A real collector of OpenTelemetry, or a played one, with the spans that it has got."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from elasticjob_localcluster.controlplane.ports import free_port
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.served_app import served_app
from tests.support.wait import until


@dataclass(frozen=True)
class Received:
    """A span as OTLP's JSON has it."""

    service: str
    span: dict[str, Any]

    @property
    def parent(self) -> str:
        """The identifier of the span that contains it; empty for none."""
        return str(self.span.get("parentSpanId", ""))

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes; numbers are texts."""
        return {
            each["key"]: next(iter(each["value"].values()))
            for each in self.span.get("attributes", ())
        }


@dataclass
class Collector:
    """A collector.

    Attributes:
        endpoint: where it takes spans.
    """

    endpoint: str = ""
    spans: list[Received] = field(default_factory=list)

    def named(self, name: str) -> list[Received]:
        """Return the spans with this name, by their end."""
        found = [each for each in self.spans if each.span["name"] == name]
        return sorted(found, key=lambda each: int(each.span["endTimeUnixNano"]))

    def path(self, found: Received) -> list[str]:
        """Return the names of the spans that contain one, and its own, from the outermost on."""
        parents = [each for each in self.spans if each.span["spanId"] == found.parent]
        return [*(self.path(parents[0]) if parents else ()), found.span["name"]]

    def shown(self, _: object = "") -> str:
        """Return all spans, for the message of a failed test."""
        return "\n".join(
            f"{each.service}: {'/'.join(self.path(each))} {each.attributes}" for each in self.spans
        )

    async def take(self, request: web.Request) -> web.Response:
        """Take a request of OTLP."""
        if request.content_type == "application/json":
            asked = await request.json()
        else:
            asked = MessageToDict(ExportTraceServiceRequest.FromString(await request.read()))
        for group in asked["resourceSpans"]:
            resource = Received("", group["resource"]).attributes
            for scope in group["scopeSpans"]:
                self.spans += [Received(resource["service.name"], each) for each in scope["spans"]]
        return web.json_response({})


@asynccontextmanager
async def played_collector() -> AsyncIterator[Collector]:
    """Take spans as a collector does."""
    collector = Collector()
    application = web.Application()
    application.router.add_post("/v1/traces", collector.take)
    async with served_app(application) as port:
        collector.endpoint = f"http://127.0.0.1:{port}"
        yield collector


@asynccontextmanager
async def run_collector(program: Path, folder: Path) -> AsyncIterator[Collector]:
    """Run the real program, which passes on what it gets."""
    port = free_port()
    file = folder / "collector.yaml"
    async with played_collector() as collector:
        exporter = {
            "endpoint": collector.endpoint,
            "encoding": "json",
            "compression": "none",
            "sending_queue": {"enabled": False},
        }
        collector.endpoint = f"http://127.0.0.1:{port}"
        configuration = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {"otlp_http": exporter},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp_http"]}},
            },
        }
        file.write_text(yaml.safe_dump(configuration))
        log = folder / "collector.log"
        with (
            log.open("wb") as output,
            subprocess.Popen([program, f"--config={file}"], stderr=output) as process,
        ):

            async def answers() -> bool:
                try:
                    async with aiohttp.ClientSession() as http, http.get(collector.endpoint):
                        return True
                except aiohttp.ClientConnectorError:
                    assert process.poll() is None, log.read_text()
                    return False

            try:
                await until("the collector answers", answers)
                yield collector
            finally:
                process.terminate()
