"""Measures the container's GPUs with NVIDIA's management library (NVML).

The library comes with the driver and is mounted into containers that have GPUs; without it the
usage is zero. It is called by ctypes: three functions do not justify a dependency of every worker.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from elasticjob_processes.exec_child import original_environment

LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED, for example by a part of a GPU; the value counts as zero."""


@dataclass(frozen=True)
class GpuUsage:
    """The mean of all GPUs' utilization, and the sum of their memory in use."""

    percent: int = 0
    memory_bytes: int = 0


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class NvmlError(Exception):
    """The library has refused a call."""


class Reader:
    """Reads all GPUs, until an error: a broken driver does not recover while it is in use."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Prepare; the library is loaded by the first reading, which can take a while."""
        self._path = library
        self._library: ctypes.CDLL | None = None
        self._devices: list[ctypes.c_void_p] = []
        self._opened = False

    def read(self) -> GpuUsage:
        """Return the present usage; zero without GPUs."""
        try:
            if not self._opened:
                self._opened = True
                self._open()
            return self._measure()
        except (OSError, AttributeError, NvmlError):
            self._devices = []
            return GpuUsage()

    def _open(self) -> None:
        self._library = _load(self._path)
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            device = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            self._devices.append(device)

    def _measure(self) -> GpuUsage:
        busy = 0
        used = 0
        for device in self._devices:
            utilization = _Utilization()
            memory = _Memory()
            self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(utilization))
            self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            busy += utilization.gpu
            used += memory.used
        return GpuUsage(percent=round(busy / max(1, len(self._devices))), memory_bytes=used)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code not in (0, _NOT_SUPPORTED):
            raise NvmlError(f"{name} returned {code}")


def _load(library: str) -> ctypes.CDLL:
    """Load a library, also from LD_LIBRARY_PATH, which the loader of an installed agent ignores."""
    try:
        return ctypes.CDLL(library)
    except OSError:
        for folder in original_environment().get("LD_LIBRARY_PATH", "").split(":"):
            if folder and (found := Path(folder, library)).exists():
                return ctypes.CDLL(str(found))
        raise
