"""The number of a member's training processes, and the GPUs of each."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.gpus import Gpus, divided_devices, gpus_of, slots, slots_error

FOUR = Gpus("nvidia.com/gpu", 4)


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"nvidia.com/gpu": 4}, FOUR),
        ({"nvidia.com/gpu": "4"}, FOUR),
        ({"nvidia.com/gpu": 0, "amd.com/gpu": 2}, Gpus("amd.com/gpu", 2)),
        ({"gpu.intel.com/i915": 1}, Gpus("gpu.intel.com/i915", 1)),
        ({"cpu": 4, "example.com/gpu": 2}, None),
    ],
)
def test_gpus_are_those_of_the_limits(limits: dict[str, Any], found: Gpus | None) -> None:
    assert gpus_of({"resources": {"limits": limits}}) == found


def test_a_container_without_limits_has_no_gpus() -> None:
    assert [
        gpus_of(each)
        for each in ({}, {"resources": None}, {"resources": {"requests": {"nvidia.com/gpu": 1}}})
    ] == [None] * 3


@pytest.mark.parametrize(
    ("framework", "asked", "gpus", "number"),
    [
        ("pytorch", None, FOUR, 4),
        ("horovod", None, FOUR, 4),
        ("jax", None, FOUR, 1),
        ("tensorflow", None, FOUR, 1),
        ("mxnet", None, FOUR, 1),
        ("custom", None, FOUR, 1),
        ("pytorch", None, None, 1),
        ("pytorch", 2, FOUR, 2),
        ("jax", 4, FOUR, 4),
        ("custom", 3, None, 3),
        ("pytorch", None, Gpus("nvidia.com/gpu", 1000), 256),
    ],
)
def test_the_number_of_processes_is_set_by_the_job_or_by_framework_and_gpus(
    framework: str, asked: int | None, gpus: Gpus | None, number: int
) -> None:
    assert slots(framework, asked, gpus) == number


@pytest.mark.parametrize("asked", [3, 5, 8])
def test_processes_that_cannot_divide_the_gpus_are_refused_with_both_numbers(asked: int) -> None:
    error = slots_error(asked, FOUR)
    assert error is not None
    assert error.startswith(f"{asked} processes cannot divide the 4 of nvidia.com/gpu")


@pytest.mark.parametrize(
    ("asked", "gpus"), [(None, FOUR), (1, FOUR), (2, FOUR), (4, FOUR), (7, None)]
)
def test_processes_that_can_divide_the_gpus_are_not_refused(
    asked: int | None, gpus: Gpus | None
) -> None:
    assert slots_error(asked, gpus) is None


@pytest.mark.parametrize(
    ("framework", "number", "gpus", "devices"),
    [
        ("jax", 4, FOUR, "CUDA_VISIBLE_DEVICES=4"),
        ("custom", 2, Gpus("amd.com/gpu", 4), "HIP_VISIBLE_DEVICES=4"),
        ("pytorch", 4, FOUR, None),
        ("jax", 1, FOUR, None),
        ("jax", 2, None, None),
        ("jax", 8, FOUR, None),
    ],
)
def test_gpus_are_divided_if_processes_do_not_choose_by_local_rank(
    framework: str, number: int, gpus: Gpus | None, devices: str | None
) -> None:
    assert divided_devices(framework, number, gpus) == devices
