"""Sends spans to an OpenTelemetry collector by OTLP, with the packages of the extra `otel`.

A thread sends them, from a queue with a bound, and gives up on a collector that does not answer.
Nothing else waits for it. The variables of OpenTelemetry apply: `OTEL_EXPORTER_OTLP_*` for the
collector, `OTEL_BSP_*` for the queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from elasticjob_api import names
from elasticjob_api.traces import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

log = logging.getLogger(__name__)
_END_SECONDS = 2.0


class TraceExport:
    """Sends spans; without a collector or without the packages it drops them."""

    def __init__(self, service: str, environment: Mapping[str, str]) -> None:
        """Begin to send as this service, if the environment names a collector."""
        self._processor: SpanProcessor | None = None
        named = next((name for name in names.ENVS_OTLP if environment.get(name)), None)
        if named is None:
            return
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            self._resource = Resource.create({"service.name": service})
            self._processor = BatchSpanProcessor(OTLPSpanExporter())
        except ImportError as error:
            log.warning("no traces: %s is set, but %s; install elasticjob[otel]", named, error)
        except Exception as error:  # noqa: BLE001 - whatever a variable is, the program goes on
            log.warning("no traces: the variables OTEL_* cannot be used: %s", error)

    @property
    def is_on(self) -> bool:
        """Whether spans are sent anywhere."""
        return self._processor is not None

    def send(self, span: Span | None) -> None:
        """Put a span into the queue. The oldest one is dropped from a full queue."""
        if span is not None and self._processor is not None and span.context.sampled:
            self._processor.on_end(_readable(span, self._resource))

    def close(self) -> None:
        """Send what is queued, within two seconds."""
        if self._processor is not None:
            # Its own wait is longer than a pod has.
            end = threading.Thread(target=self._processor.shutdown, daemon=True)
            end.start()
            end.join(_END_SECONDS)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span in the form that exporters take."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(span_id: str) -> SpanContext:
        return SpanContext(
            int(span.context.trace_id, 16),
            int(span_id, 16),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )

    return ReadableSpan(
        span.name,
        context(span.context.span_id),
        context(span.parent) if span.parent else None,
        resource=resource,
        attributes=span.attributes,
        status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
        start_time=int(span.start * 1e9),
        # Clocks of several machines differ.
        end_time=int(max(span.start, span.end) * 1e9),
        instrumentation_scope=InstrumentationScope("elasticjob"),
    )
