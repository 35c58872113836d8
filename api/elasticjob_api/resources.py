"""Resources by their names in Kubernetes: CPU, memory, and extended ones such as GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from elasticjob_api.meta import Json, Quantity
from elasticjob_api.names import RESOURCE_GPU
from elasticjob_api.quantity import parse_quantity

MAX_RESOURCES = 8
"""The greatest number of resources in a plan's member, and in `resourceLimits`."""
MAX_RESOURCE_NAME_CHARACTERS = 63
"""The limit of a resource's name with its domain. A status may have it once for each member."""
_EXTENDED = (
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?"
)
_EXTENDED_FORM = re.compile(_EXTENDED)
_SHORT_GPU = "gpu"


def _schema(*rules: tuple[str, str]) -> Json:
    return {
        "x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]
    }


_SHORT_NAMES = (
    f"self.all(name, name.size() <= {MAX_RESOURCE_NAME_CHARACTERS})",
    f"the name of a resource has at most {MAX_RESOURCE_NAME_CHARACTERS} characters",
)
Resources = Annotated[
    dict[str, Quantity],
    Meta(max_length=MAX_RESOURCES, extra_json_schema=_schema(_SHORT_NAMES)),
]
"""The resources that a plan sets for a member: requests of the training container, and its limits
if it has some.
"""
ResourceLimits = Annotated[
    dict[str, Quantity],
    Meta(
        description="Limits of the sum of all members' requests: `cpu` in cores, `memory` in "
        "bytes, "
        f"and extended resources such as `{RESOURCE_GPU}`, for which `{_SHORT_GPU}` is short.",
        max_length=MAX_RESOURCES,
        extra_json_schema=_schema(
            _SHORT_NAMES,
            (
                f"!('{_SHORT_GPU}' in self && '{RESOURCE_GPU}' in self)",
                f"{_SHORT_GPU} is short for {RESOURCE_GPU}; give one of them",
            ),
        ),
    ),
]
ResourceName = Annotated[
    str, Meta(pattern=rf"^(cpu|memory|{_EXTENDED})$", max_length=MAX_RESOURCE_NAME_CHARACTERS)
]
Quantities = Annotated[dict[ResourceName, Quantity], Meta(max_length=MAX_RESOURCES)]
"""The resources that plans have set for a member."""


def is_extended(name: str) -> bool:
    """Return whether a resource is extended: whole numbers, with a limit, and fixed in a pod."""
    return "/" in name


def name_error(name: str) -> str | None:
    """Return why a plan cannot set a resource of this name; None if it can."""
    if name in ("cpu", "memory"):
        return None
    domain, _, _ = name.partition("/")
    native = f"{domain}.".endswith("kubernetes.io.") or domain.startswith("requests.")
    if len(name) > MAX_RESOURCE_NAME_CHARACTERS or native or not _EXTENDED_FORM.fullmatch(name):
        return (
            f"{name[:MAX_RESOURCE_NAME_CHARACTERS]!r} is not cpu, memory or an extended resource "
            "<domain>/<name> of at "
            f"most {MAX_RESOURCE_NAME_CHARACTERS} characters, such as {RESOURCE_GPU} or rdma/hca"
        )
    return None


def amount_error(name: str, value: int | str) -> str | None:
    """Return why this amount of a resource is invalid; None if it is valid."""
    try:
        number = parse_quantity(value)
    except ValueError as error:
        return str(error)
    if is_extended(name) and number != number.to_integral_value():
        return f"{value} must be a whole number"
    return None


def bounded_resource(key: str) -> str:
    """Return the resource that a key of `resourceLimits` limits."""
    return RESOURCE_GPU if key == _SHORT_GPU else key


def limits_by_resource(limits: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return `resourceLimits` by the names of the resources."""
    return {bounded_resource(key): limit for key, limit in limits.items()}
