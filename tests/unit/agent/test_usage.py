"""The agent measures the container's cgroup, or without one its processes; and GPUs."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import psutil
import pytest
from elasticjob_agent import usage
from elasticjob_agent.gpu import GpuUsage, Reader
from elasticjob_agent.standby.import_list import Memory
from elasticjob_agent.usage import Meter, Sampler, Usage

PID = 7
MEMORY_2 = {
    "memory.events": "oom 4\noom_kill 3\noom_group_kill 0\n",
    "memory.current": "1000\n",
    "memory.stat": "anon 600\ninactive_file 300\nactive_file 100\n",
}
CPU_2 = {"cpu.stat": "usage_usec 2500000\nuser_usec 2000000\n"}
MEMORY_1 = {
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "memory.usage_in_bytes": "1000\n",
    "memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
}
CPU_1 = {"cpuacct.usage": "2500000000\n"}


def group(folder: Path, files: dict[str, str], pids: str = f"{PID}\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"cgroup.procs": pids, **files}.items():
        (folder / name).write_text(text)


def container_of(tmp_path: Path, membership: str) -> usage.Container | None:
    path = tmp_path / "membership"
    path.write_text(membership)
    return usage.own_container(tmp_path / "mounts", path, PID)


@pytest.mark.parametrize("membership", ["0::/\n", "0::/kubepods/pod1\n"])
def test_cgroup_v2_is_read_at_the_mount_of_a_container_and_at_the_path_the_kernel_names(
    tmp_path: Path, membership: str
) -> None:
    group(tmp_path / "mounts" / membership[4:].strip(), {**MEMORY_2, **CPU_2})
    container = container_of(tmp_path, membership)
    assert container is not None
    assert (container.memory_bytes(), container.cpu_seconds(), container.memory_kills()) == (
        700,
        2.5,
        3,
    )


@pytest.mark.parametrize("inside", ["", "kubepods/pod1"])
def test_cgroup_v1_is_read_from_its_two_groups(tmp_path: Path, inside: str) -> None:
    group(tmp_path / "mounts" / "memory" / inside, MEMORY_1)
    group(tmp_path / "mounts" / "cpuacct" / inside, CPU_1)
    container = container_of(
        tmp_path, "9:name=systemd:/x\n4:memory:/kubepods/pod1\n2:cpu,cpuacct:/kubepods/pod1\n0::/\n"
    )
    assert container is not None
    assert (container.memory_bytes(), container.cpu_seconds(), container.memory_kills()) == (
        700,
        2.5,
        3,
    )


@pytest.mark.parametrize(
    ("files", "pids"),
    [
        ({**MEMORY_2, **CPU_2}, f"{PID}\n8\n"),
        ({**MEMORY_2, **CPU_2}, "0\n"),
        (CPU_2, f"{PID}\n"),
        (MEMORY_2, f"{PID}"),
    ],
)
def test_a_shared_or_incomplete_cgroup_is_not_used(
    tmp_path: Path, files: dict[str, str], pids: str
) -> None:
    group(tmp_path / "mounts", files, pids)
    assert container_of(tmp_path, "0::/\n") is None


def test_the_meter_returns_the_growth_of_cpu_seconds_and_the_working_set(tmp_path: Path) -> None:
    group(tmp_path, {**MEMORY_2, **CPU_2})
    meter = Meter(usage.Container(memory=tmp_path, cpu=tmp_path, version=2))
    assert meter.read(10.0) == Usage(0.0, 700)
    group(tmp_path, {**MEMORY_2, "cpu.stat": "usage_usec 5500000\n"})
    assert meter.read(12.0) == Usage(1.5, 700)


def test_a_container_whose_cgroup_vanishes_is_measured_by_its_processes(tmp_path: Path) -> None:
    meter = Meter(usage.Container(memory=tmp_path, cpu=tmp_path, version=2))
    code = "data = b'x' * 50_000_000\nprint('up', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert meter.read(time.monotonic()).cpu_cores == 0
        while (measured := meter.read(time.monotonic())).cpu_cores < 0.01:
            time.sleep(0.05)
        child.kill()
    assert measured.memory_bytes > 50_000_000


def test_a_hanging_reading_blocks_no_caller_and_becomes_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hang = threading.Event()
    hanging = threading.Event()
    readings = itertools.count(1)

    def read() -> int:
        number = next(readings)
        if number == 2:
            hanging.set()
            hang.wait()
        return number

    sampler = Sampler(read, name="sampler", unknown=0)
    while not hanging.is_set():
        sampler.latest()
        time.sleep(0.001)
    assert sampler.latest() == 1
    monkeypatch.setattr(usage, "STALE_SECONDS", 0.0)
    assert sampler.latest() == 0
    monkeypatch.undo()
    hang.set()
    while sampler.latest() < 2:
        time.sleep(0.001)


@pytest.mark.guarantee("diagnosis-ends-no-agent")
@pytest.mark.parametrize("error", [OSError("too many open files"), ValueError("9" * 5000)])
def test_a_reading_that_fails_is_ignored_and_the_next_one_counts(error: Exception) -> None:
    readings = itertools.count(1)

    def read() -> int:
        if (number := next(readings)) == 2:
            raise error
        return number

    sampler = Sampler(read, name="sampler", unknown=0)
    read_values = set[int]()
    while max(read_values, default=0) < 3:
        read_values.add(sampler.latest())
        time.sleep(0.001)


@pytest.mark.guarantee("diagnosis-ends-no-agent")
def test_nothing_is_measured_while_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = Sampler(lambda: 1, name="sampler", unknown=0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
        assert sampler.latest() == 0
    while sampler.latest() < 1:
        time.sleep(0.001)


NVML = """
struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
static int devices[2] = {40, 90};
int nvmlInit_v2(void) { return %(init)d; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &devices[index]; return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) {
    rates->gpu = *(int *)device; rates->memory = 1; return %(rates)d;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    memory->total = 100ull << 30; memory->free = 0; memory->used = *(int *)device * (1ull << 30);
    return 0;
}
"""


@pytest.mark.skipif(
    shutil.which("gcc") is None, reason="needs gcc to compile a library like the driver's"
)
@pytest.mark.parametrize(
    ("init", "rates", "expected"),
    [
        (0, 0, GpuUsage(65, 130 << 30)),
        (0, 3, GpuUsage(0, 130 << 30)),  # a part of a GPU: its utilization is not reported
        (0, 999, GpuUsage()),
        (9, 0, GpuUsage()),
    ],
)
def test_gpus_are_read_through_the_drivers_library(
    tmp_path: Path, init: int, rates: int, expected: GpuUsage
) -> None:
    source = tmp_path / "nvml.c"
    library = tmp_path / "libnvml.so"
    # A structure that a refused call has not filled has no meaning.
    text = NVML % {"init": init, "rates": rates}
    source.write_text(
        text if rates == 0 else text.replace("rates->gpu = *(int *)device;", "rates->gpu = 0;")
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    reader = Reader(str(library))
    assert [reader.read(), reader.read()] == [expected, expected]


def test_without_a_driver_there_are_no_gpus(tmp_path: Path) -> None:
    assert Reader(str(tmp_path / "libnvidia-ml.so.1")).read() == GpuUsage()


@pytest.mark.parametrize(
    ("files", "version", "limit"),
    [
        ({"memory.max": "max\n"}, 2, None),
        ({"memory.max": "4096\n"}, 2, 4096),
        ({"memory.limit_in_bytes": "8192\n"}, 1, 8192),
    ],
)
def test_the_memory_limit_of_a_container_is_read(
    tmp_path: Path, files: dict[str, str], version: int, limit: int | None
) -> None:
    group(tmp_path, files)
    container = usage.Container(memory=tmp_path, cpu=tmp_path, version=version)
    assert container.memory_limit() == limit


@pytest.mark.parametrize(("limit", "left"), [("1500\n", 800), ("500\n", -200)])
def test_what_is_left_of_the_containers_memory_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, left: int
) -> None:
    group(tmp_path, {**MEMORY_2, **CPU_2, "memory.max": limit})
    container = usage.Container(memory=tmp_path, cpu=tmp_path, version=2)
    monkeypatch.setattr(usage, "own_container", lambda: container)
    monitor = usage.UsageMonitor()
    assert monitor.memory() == Memory(total=int(limit), left=left)
    (tmp_path / "memory.oom.group").write_text("1\n")
    assert monitor.memory().together
    (tmp_path / "memory.max").unlink()
    assert monitor.memory().left == 0


def test_where_there_is_no_cgroup_the_limit_is_that_which_the_node_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "own_container", lambda: None)
    own = psutil.Process().memory_info().rss
    limit = own + 100
    monkeypatch.setattr(usage, "_resident_bytes", lambda: own)
    assert usage.UsageMonitor(limit).memory() == Memory(total=limit, left=100)
    assert not usage.UsageMonitor().memory().limited
    assert not usage.UsageMonitor(psutil.virtual_memory().total + 1).memory().limited
