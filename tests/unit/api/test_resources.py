"""The resources that plans may set and limits may name, and their amounts."""

from __future__ import annotations

import msgspec
import pytest
from elasticjob_api.resources import Quantities, amount_error, limits_by_resource, name_error

EXTENDED = (
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.5gb.shared",
    "rdma/hca_shared_devices_a",
    "google.com/tpu",
    "xilinx.com/fpga-xilinx_u30_gen3x4_base_2-0",
)


@pytest.mark.parametrize("name", ["cpu", "memory", *EXTENDED, f"x/{'a' * 61}"])
def test_cpu_memory_and_any_extended_resource_have_a_name(name: str) -> None:
    assert name_error(name) is None
    assert msgspec.convert({name: 1}, Quantities) == {name: 1}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "gpu",
            "pods",
            "ephemeral-storage",
            "a/b/c",
            "/b",
            "a/",
            "A/b",
            "a./b",
            "a/b-",
            "a b/c",
            "a/b\n",
        ),
        *("kubernetes.io/x", "node.kubernetes.io/x", "requests.nvidia.com/gpu", f"x/{'a' * 62}"),
    ],
)
def test_resources_that_no_member_can_request_are_refused_by_name(name: str) -> None:
    error = name_error(name)
    assert error is not None
    assert error.startswith(f"{name[:63]!r} is not cpu, memory or an extended resource")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("cpu", "500m", None),
        ("rdma/hca", 2, None),
        ("rdma/hca", "2000m", None),
        ("rdma/hca", "1k", None),
        ("rdma/hca", "500m", "500m must be a whole number"),
        ("memory", "much", "'much' is not a quantity such as 500m, 2 or 4Gi"),
    ],
)
def test_extended_resources_come_in_whole_numbers(
    name: str, value: int | str, error: str | None
) -> None:
    assert amount_error(name, value) == error


def test_gpu_is_short_for_nvidia_gpus_in_limits() -> None:
    assert limits_by_resource({"gpu": 8, "amd.com/gpu": 4}) == {
        "nvidia.com/gpu": 8,
        "amd.com/gpu": 4,
    }
