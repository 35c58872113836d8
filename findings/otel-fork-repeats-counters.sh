#!/usr/bin/env bash
# Each process that is forked from one with OpenTelemetry metrics exports all counts of its parent again, under an instance id of its own.
# The reader's thread and the id are renewed after a fork, the counts are kept. Issues describe it; the docstring of the reader does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check opentelemetry-sdk==1.45.2 opentelemetry-api==1.45.2
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import multiprocessing
import sys
import time
from importlib.metadata import version
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader

EPOCHS, WORKERS, SAMPLES = 3, 2, 1000
exported = Path("exported").absolute()


class Backend(MetricExporter):
    """Receives what each process exports, one line a value: the instance and its count."""

    def export(self, metrics_data, timeout_millis=0, **_):
        for resource in metrics_data.resource_metrics:
            for point in resource.scope_metrics[0].metrics[0].data.data_points:
                with exported.open("a") as file:
                    file.write(f"{resource.resource.attributes['service.instance.id']} {point.value}\n")
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=0):
        return True

    def shutdown(self, timeout_millis=0, **_):
        pass


def load():
    """Load samples for a second, as a worker of a data loader does; it counts nothing itself."""
    time.sleep(1)


provider = MeterProvider([PeriodicExportingMetricReader(Backend(), export_interval_millis=100)])
trained = provider.get_meter("train").create_counter("samples")
fork = multiprocessing.get_context("fork")
for epoch in range(EPOCHS):
    workers = [fork.Process(target=load) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    trained.add(SAMPLES)
provider.shutdown()
latest = dict(line.split() for line in exported.read_text().splitlines())
counts = sorted(map(int, latest.values()))
print(f"opentelemetry-sdk {version('opentelemetry-sdk')}: {EPOCHS} epochs of {SAMPLES} samples, which the main process counts")
print(f"{WORKERS} workers are forked in each epoch. They count nothing, and end with it.")
print(f"Expected: one instance exports {EPOCHS * SAMPLES}; the workers export nothing, or 0.")
print(f"Seen: {len(counts)} instances export {counts}; their sum is {sum(counts)}.")
print("PyTorch's DataLoader forks new workers in each epoch, unless they persist. A total over instances grows with the square of the epochs.")
if counts != [1000, 1000, 2000, 2000, 3000]:
    sys.exit("Changed: a forked process does not export its parent's counts, or not as another instance.")
PY
