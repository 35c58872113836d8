"""Processes of PyTorch learn that their container has no accelerator, from its device files."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_agent.accelerators import has_accelerator


@pytest.mark.parametrize(
    "file",
    ["nvidia0", "nvidiactl", "kfd", "dxg", "davinci3", "hl0", "neuron0", "accel/accel_controlD0"],
)
def test_a_device_file_shows_an_accelerator(tmp_path: Path, file: str) -> None:
    assert not has_accelerator({}, tmp_path, tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert has_accelerator({}, tmp_path, tmp_path)


@pytest.mark.parametrize("file", ["null", "shm", "accel/accel0", "nvidia-caps/nvidia-cap1"])
def test_other_device_files_do_not(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert not has_accelerator({}, tmp_path, tmp_path)


@pytest.mark.parametrize(("visible", "found"), [("0,1", True), ("", False), ("-1", False)])
def test_hidden_gpus_do_not_count(tmp_path: Path, visible: str, found: bool) -> None:
    (tmp_path / "nvidia0").touch()
    assert has_accelerator({"CUDA_VISIBLE_DEVICES": visible}, tmp_path, tmp_path) == found


@pytest.mark.parametrize(
    ("vendor", "address", "found"),
    [
        ("0x8086", "0000:00:02.0", False),
        ("0x8086", "0000:3a:00.0", True),
        ("0x1002", "0000:00:01.0", False),
    ],
)
def test_of_intels_gpus_that_in_the_cpu_does_not_count(
    tmp_path: Path, vendor: str, address: str, found: bool
) -> None:
    devices, drivers, pci = (tmp_path / name for name in ("dev", "drm", "pci"))
    (devices / "dri").mkdir(parents=True)
    (devices / "dri/renderD128").touch()
    (pci / address).mkdir(parents=True)
    (pci / address / "vendor").write_text(f"{vendor}\n")
    (drivers / "renderD128").mkdir(parents=True)
    (drivers / "renderD128/device").symlink_to(pci / address)
    assert has_accelerator({}, devices, drivers) == found
