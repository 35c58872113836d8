"""Finds out whether PyTorch can compute on an accelerator in this container, without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_DEVICES = Path("/dev")
_DRIVERS = Path("/sys/class/drm")
_OF_CUDA = ("nvidia[0-9]*", "nvidiactl", "nvhost-gpu", "nvgpu", "dxg", "kfd")
"""Files of NVIDIA's GPUs, also of Jetson and WSL, and of AMD's."""
_OF_OTHERS = (
    *("hl[0-9]*", "accel/accel_controlD*"),  # Gaudi; accel/accel0 alone is also a laptop's NPU
    *("davinci[0-9]*", "cambricon_dev*", "mtgpu*", "tcaicard*", "neuron[0-9]*"),
    *("accel[0-9]*", "vfio/[0-9]*"),  # TPUs
)
_INTEL = "0x8086"
_GPU_IN_THE_CPU = "0000:00:02.0"
"""The PCI address of Intel's GPUs that are part of the CPU."""
CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"


def has_accelerator(
    environment: Mapping[str, str], devices: Path = _DEVICES, drivers: Path = _DRIVERS
) -> bool:
    """Return whether the container has the device file of an accelerator that it may use."""
    hidden = environment.get(CUDA_DEVICES, "0") in ("", "-1")
    patterns = _OF_OTHERS if hidden else (*_OF_CUDA, *_OF_OTHERS)
    if any(True for pattern in patterns for _ in devices.glob(pattern)):
        return True
    return any(_is_intels(drivers / node.name) for node in devices.glob("dri/renderD*"))


def _is_intels(gpu: Path) -> bool:
    """Return whether a GPU is one of Intel's that PyTorch can use: none in the CPU."""
    device = gpu / "device"
    try:
        vendor = (device / "vendor").read_text().strip()
    except OSError:
        return False
    return vendor == _INTEL and device.resolve().name != _GPU_IN_THE_CPU
