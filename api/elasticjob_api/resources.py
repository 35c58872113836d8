"""Resources by their names in Kubernetes.

CPU, memory, and the extended ones, such as GPUs and network cards. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from elasticjob_api.meta import Json, Quantity
from elasticjob_api.names import RESOURCE_GPU
from elasticjob_api.quantity import parse_quantity

MAX_RESOURCES = 8
"""Resources that a member may be given by a plan, and that all members together may be bounded in.
"""
MAX_RESOURCE_NAME_CHARACTERS = 63
"""Of a resource's name with its domain; a job's status may have it once for each member."""
_EXTENDED = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?"
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
"""What a plan sets for a member: requests of the container that trains, and its limits where there
are some.
"""
ResourceLimits = Annotated[
    dict[str, Quantity],
    Meta(
        description="Bounds of what all members of the job request together: `cpu` in cores, `memory` in bytes, and "
        f"extended resources such as `{RESOURCE_GPU}`, for which `{_SHORT_GPU}` is short.",
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
"""What a member has been given by plans."""


def is_extended(name: str) -> bool:
    """Whether a resource is none of Kubernetes' own.

    It has whole numbers, a limit, and never changes in a pod.
    """
    return "/" in name


def name_error(name: str) -> str | None:
    """Return why no plan can set a resource of this name; None if one can."""
    if name in ("cpu", "memory"):
        return None
    domain, _, _ = name.partition("/")
    native = f"{domain}.".endswith("kubernetes.io.") or domain.startswith("requests.")
    if len(name) > MAX_RESOURCE_NAME_CHARACTERS or native or not _EXTENDED_FORM.fullmatch(name):
        return (
            f"{name[:MAX_RESOURCE_NAME_CHARACTERS]!r} is not cpu, memory or an extended resource <domain>/<name> of at "
            f"most {MAX_RESOURCE_NAME_CHARACTERS} characters, such as {RESOURCE_GPU} or rdma/hca"
        )
    return None


def amount_error(name: str, value: int | str) -> str | None:
    """Return why a resource cannot be had in this amount; None if it can."""
    try:
        number = parse_quantity(value)
    except ValueError as error:
        return str(error)
    if is_extended(name) and number != number.to_integral_value():
        return f"{value} must be a whole number"
    return None


def bounded_resource(key: str) -> str:
    """Return the resource that a key of `resourceLimits` bounds."""
    return RESOURCE_GPU if key == _SHORT_GPU else key


def limits_by_resource(limits: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return `resourceLimits` by the names of the resources."""
    return {bounded_resource(key): limit for key, limit in limits.items()}
